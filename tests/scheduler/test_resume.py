"""A run that stops anywhere goes on with its outstanding groups, and the bound holds across."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.config.run import PolicyName
from opengyre.scheduler.base import AdmitGroup, CarriedGroup, DispatchGroups, Finish, SchedulePlan
from opengyre.scheduler.staleness import Staleness
from opengyre.scheduler.state import Burst
from tests.scheduler.strategies import POLICIES, plans
from tests.scheduler.world import World


@given(
    plan=plans(), policy=st.sampled_from(POLICIES), moves=st.integers(0, 150), seed=st.integers()
)
@settings(max_examples=60, deadline=None)
def test_a_run_that_stops_anywhere_consumes_each_group_once_in_all(
    plan: SchedulePlan, policy: PolicyName, moves: int, seed: int
) -> None:
    rng = random.Random(seed)
    first = World(plan, policy)
    for _ in range(moves):
        actions = first.actions()
        if actions:
            rng.choice(actions)()
    rest = replace(plan, first_step=first.step, first_version=first.version)
    second = World(rest, policy, carried=first.outstanding(), prefix="h")
    second.drain(rng.randrange)
    consumed = first.consumed + second.consumed
    needed = plan.total_steps * plan.groups_per_step
    assert len(consumed) == needed
    assert set(first.groups) <= set(second.consumed)
    assert first.made + second.made == needed


PLAN = SchedulePlan(
    cells=(2, 2),
    group_size=2,
    groups_per_step=1,
    steps_per_burst=2,
    staleness_steps=1,
    total_steps=6,
    first_step=2,
    first_version=1,
)


@pytest.mark.parametrize("policy", POLICIES)
def test_groups_past_the_bound_are_taken_first_and_do_not_stop_the_run(policy: PolicyName) -> None:
    plan = replace(PLAN, first_step=4, first_version=9, total_steps=8)
    world = World(plan, policy, (CarriedGroup("old", 1, ready=False),), bounded=False)
    world.drain_newest_first()
    assert world.consumed.index("old") < 2


def test_a_resume_counts_the_members_that_ended() -> None:
    carried = (CarriedGroup("a", 0, ready=True), CarriedGroup("b", 1, ready=False, ended=1))
    world = World(PLAN, "elastic", carried)
    assert world.decided(DispatchGroups) == [DispatchGroups(1)]
    assert world.scheduler.state.counters == (6, 3, 3)


def test_a_resume_in_mid_burst_dispatches_for_the_steps_that_are_left_of_it() -> None:
    """One step of two, and the budget of one more."""
    world = World(replace(PLAN, first_step=3), "elastic", (CarriedGroup("a", 1, ready=False),))
    assert world.decided(DispatchGroups) == [DispatchGroups(1)]
    assert world.scheduler.state.burst == Burst(index=0, first_step=3, end_step=4)


def test_a_burst_that_a_resume_entered_in_its_middle_is_followed_by_whole_ones() -> None:
    """Three groups are due in this burst of one step or in the next one of three. So there is a place
    for a newer one that is ready first."""
    plan = replace(
        PLAN,
        steps_per_burst=3,
        staleness_steps=3,
        first_step=2,
        first_version=5,
        total_steps=12,
    )
    old = (CarriedGroup(name, 4, ready=False) for name in "abc")
    world = World(plan, "async", (*old, CarriedGroup("new", 5, ready=True)))
    assert world.decided(AdmitGroup) == [AdmitGroup("new", 2)]
    world.drain_newest_first()


def test_a_carried_group_is_as_old_as_the_steps_since_its_weights() -> None:
    """Step 5 is in the middle of the burst of version 2, which has the weights of step 4; those of
    version 1 had two steps."""
    plan = replace(PLAN, first_step=5, first_version=2)
    world = World(plan, "async", (CarriedGroup("a", 1, ready=True),))
    world.drain_newest_first()
    assert world.scheduler.state.staleness_seen == [Staleness(versions=1, steps=3)]


def test_more_carried_groups_than_wanted_dispatch_nothing() -> None:
    carried = tuple(CarriedGroup(f"g{i}", 1, ready=True) for i in range(4))
    assert World(PLAN, "elastic", carried).decided(DispatchGroups) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_was_over_finishes_at_once(policy: PolicyName) -> None:
    world = World(replace(PLAN, first_step=6, first_version=3), policy)
    assert world.log[0][2] == [Finish()]
