"""A random world against the real scheduler, under each policy."""

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from opengyre.scheduler.base import SchedulePlan
from tests.scheduler.strategies import POLICIES, plans
from tests.scheduler.world import LOST, World

SETTINGS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


class RandomWorld(RuleBasedStateMachine):
    """Executions end in any order, switches complete late, cells die and return at any time."""

    policy = POLICIES[0]

    @initialize(plan=plans())
    def begin(self, plan: SchedulePlan) -> None:
        self.world = World(plan, self.policy)

    @rule(seed=st.integers(0, 2**16), count=st.integers(1, 12))
    def go_on(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            actions = self.world.actions()
            if actions:
                rng.choice(actions)()

    @precondition(lambda self: self.world.actions())
    @rule(data=st.data())
    def one_thing_happens(self, data: st.DataObject) -> None:
        actions = self.world.actions()
        actions[data.draw(st.integers(0, len(actions) - 1))]()

    @precondition(lambda self: any(group.queued for group in self.world.groups.values()))
    @rule()
    def an_execution_never_starts(self) -> None:
        groups = self.world.groups
        self.world.cancel_queued(next(name for name, group in groups.items() if group.queued))

    @precondition(lambda self: any(group.running for group in self.world.groups.values()))
    @rule()
    def an_execution_times_out(self) -> None:
        """Whether a cell serves it or not."""
        groups = self.world.groups
        self.world.time_out(next(name for name, group in groups.items() if group.running))

    @precondition(lambda self: any(group.running for group in self.world.groups.values()))
    @rule()
    def an_execution_is_tried_again(self) -> None:
        groups = self.world.groups
        self.world.repeat(next(name for name, group in groups.items() if group.running))

    @precondition(lambda self: not self.world.finished and set(self.world.roles) != {LOST})
    @rule(data=st.data())
    def a_cell_dies(self, data: st.DataObject) -> None:
        live = [cell for cell, role in enumerate(self.world.roles) if role is not LOST]
        self.world.lose(data.draw(st.sampled_from(live)))

    @precondition(lambda self: not self.world.finished and LOST in self.world.roles)
    @rule(data=st.data())
    def a_cell_returns(self, data: st.DataObject) -> None:
        lost = [cell for cell, role in enumerate(self.world.roles) if role is LOST]
        self.world.give_back(data.draw(st.sampled_from(lost)))

    def teardown(self) -> None:
        """With no more losses the run ends, though no lost satellite ever returns."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.drain(random.Random(len(world.log)).randrange)
        needed = world.plan.total_steps * world.plan.groups_per_step
        assert len(world.consumed) == len(set(world.consumed)) == needed
        assert world.made == needed
        assert world.replayed() == [decisions for _, _, decisions in world.log]


class ElasticWorld(RandomWorld):
    policy = "elastic"


class ForecastWorld(RandomWorld):
    policy = "forecast"


class ColocateWorld(RandomWorld):
    policy = "colocate"


class AsyncWorld(RandomWorld):
    policy = "async"


TestElastic = ElasticWorld.TestCase
TestElastic.settings = SETTINGS
TestForecast = ForecastWorld.TestCase
TestForecast.settings = SETTINGS
TestColocate = ColocateWorld.TestCase
TestColocate.settings = SETTINGS
TestAsync = AsyncWorld.TestCase
TestAsync.settings = SETTINGS
