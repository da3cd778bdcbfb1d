"""What forecast learns from a burst, and the moment from which it lets a satellite join."""

from dataclasses import replace

import pytest

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import (
    Begin,
    Decision,
    Event,
    ExecutionEnded,
    ExecutionStarted,
    GroupDispatched,
    GroupReady,
    Published,
    SchedulePlan,
    StepDone,
    SwitchCell,
    Switched,
)
from opengyre.scheduler.elastic import Elastic
from opengyre.scheduler.forecast import Forecast, Meter
from opengyre.scheduler.scheduler import Scheduler
from opengyre.scheduler.state import State

ROLLOUT, TRAINING = CellRole.ROLLOUT, CellRole.TRAINING

PLAN = SchedulePlan(
    cells=(4, 4, 4),
    group_size=1,
    groups_per_step=3,
    steps_per_burst=1,
    staleness_steps=0,
    total_steps=3,
)
"""Bursts of three executions; there is room for two satellites to join at once."""
ARRIVALS = (10.0, 20.0, 40.0)
"""Seconds into the first burst at which its groups are ready."""

PUBLISHING = 5.0
"""Seconds in which the cells are still in training, for no group."""


class Play:
    """Tells a scheduler under forecast what happens; switches are done at once."""

    def __init__(self, policy: Elastic | None = None, plan: SchedulePlan = PLAN) -> None:
        self._scheduler = Scheduler(plan, policy or Forecast())
        self._groups = 0

    def tell(self, event: Event, at: float) -> list[SwitchCell]:
        """Returns the switches that this led to."""
        told = [one for one in self._decide(event, at) if isinstance(one, SwitchCell)]
        done = list(told)
        for switch in told:
            done += self.tell(Switched(switch.cell, switch.to), at)
        return done

    def _decide(self, event: Event, at: float) -> list[Decision]:
        decisions = self._scheduler.decide(event, at)
        self._scheduler.state.check()
        return decisions

    def dispatch(self, at: float) -> None:
        for number in range(self._groups, self._groups + 3):
            self.tell(GroupDispatched(f"g{number}", self._scheduler.state.version), at)
            self.tell(ExecutionStarted(f"e{number}", f"g{number}"), at)
        self._groups += 3

    def ready(self, number: int, at: float) -> list[SwitchCell]:
        self.tell(ExecutionEnded(f"e{number}", f"g{number}"), at)
        return self.tell(GroupReady(f"g{number}"), at)

    def nothing(self, at: float) -> list[SwitchCell]:
        """A report that changes nothing but the time."""
        return self.tell(ExecutionStarted(f"e{self._groups - 1}", f"g{self._groups - 1}"), at)


class Measured(Elastic):
    """Elastic, with a meter beside it."""

    def __init__(self) -> None:
        self.meter = Meter()

    def arrange(self, state: State) -> list[Decision]:
        self.meter.watch(state)
        return super().arrange(state)


def first_burst(step_done: float, policy: Elastic | None = None, plan: SchedulePlan = PLAN) -> Play:
    """Nothing is known, so satellites join as soon as live work fits into half the room: one at the
    first group (two cells train), another when the last execution is over."""
    play = Play(policy, plan)
    play.tell(Begin(), 0.0)
    play.dispatch(0.0)
    joined = play.ready(0, ARRIVALS[0])
    assert joined == [SwitchCell(0, TRAINING), SwitchCell(1, TRAINING)] or plan is not PLAN
    play.ready(1, ARRIVALS[1])
    play.tell(ExecutionEnded("e2", "g2"), ARRIVALS[2])
    play.tell(GroupReady("g2"), ARRIVALS[2])
    play.nothing((ARRIVALS[2] + step_done) / 2)
    home = play.tell(StepDone(0), step_done)
    assert home == [SwitchCell(1, ROLLOUT), SwitchCell(2, ROLLOUT)] or policy is not None
    play.tell(Published(1), step_done + PUBLISHING)
    play.dispatch(step_done + PUBLISHING)
    return play


@pytest.mark.parametrize(("after_the_last", "cost"), [(6.0, 18.0), (30.0, 50.0)])
def test_a_group_costs_no_more_than_its_share_of_the_step_or_what_follows_the_last_one(
    after_the_last: float, cost: float
) -> None:
    """Two cells trained for 30 s, then three: a third of all that, or all that came after."""
    policy = Measured()
    play = first_burst(ARRIVALS[2] + after_the_last, policy)
    assert policy.meter.cost == pytest.approx(cost)
    play.nothing(400.0)
    assert policy.meter.spent == 0.0


@pytest.mark.parametrize(("after_the_last", "joins"), [(6.6, False), (6.7, True)])
def test_a_satellite_joins_when_the_cells_that_train_could_not_do_the_work_in_time(
    after_the_last: float, joins: bool
) -> None:
    """Three cells trained after the last group came: a group costs at most three times that. In the
    next burst the first group comes; two more are 30 s away, as before. The core alone will have done
    60 cell-seconds with a satellite beside it, so three groups must cost 20 each."""
    play = first_burst(ARRIVALS[2] + after_the_last)
    switches = play.ready(3, 100.0)
    assert (SwitchCell(1, TRAINING) in switches) is joins
    assert switches[0] == SwitchCell(0, TRAINING)


def test_what_was_trained_already_is_no_work_and_time_that_passed_does_not_remain() -> None:
    """A group costs 18: of 54 the core does 1 a second, while 2 x 30 shrinks by 2 a second; from the
    sixth second on the work is more."""
    play = first_burst(ARRIVALS[2] + 6.0)
    assert play.ready(3, 100.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(105.9) == []
    assert play.nothing(106.1) == [SwitchCell(1, TRAINING)]


def test_work_that_the_core_did_counts_for_no_more_than_the_groups_that_it_had() -> None:
    """One group, 18: after 18 s the core is idle, and 36 are left however long it waits."""
    play = first_burst(ARRIVALS[2] + 6.0)
    play.ready(3, 100.0)
    assert play.nothing(160.0) == [SwitchCell(1, TRAINING)]
    late = first_burst(ARRIVALS[2] + 0.1)  # a group costs 0.3: nobody is needed
    late.ready(3, 100.0)
    assert late.nothing(119.0) == []


def test_a_burst_that_comes_later_moves_the_forecast_half_way() -> None:
    """First 30 s from the first group to the last, then 50 s: 40 s are expected. A group costs 18,
    after a slower step 10% more: 19.8. One is done, so 39.6 are left against 2 x (40 - 20.2)."""
    play = first_burst(ARRIVALS[2] + 6.0)
    play.ready(3, 100.0)
    play.ready(4, 120.0)
    play.ready(5, 150.0)
    play.tell(StepDone(1), 250.0)
    play.tell(Published(2), 250.0)
    play.dispatch(250.0)
    assert play.ready(6, 300.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(320.1) == []
    assert play.nothing(320.3) == [SwitchCell(1, TRAINING)]


def test_where_live_work_fills_more_than_half_the_room_a_satellite_waits_until_all_are_needed() -> (
    None
):
    """Two executions live, and three places would stay. Of 54 the core does 18 until then; what is left
    is what three cells do in the 12 s that remain."""
    play = first_burst(ARRIVALS[2] + 6.0, plan=replace(PLAN, cells=(4, 4, 3)))
    assert play.ready(3, 100.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(117.9) == []
    assert play.nothing(118.1) == [SwitchCell(1, TRAINING)]


def test_where_training_takes_longest_nobody_waits() -> None:
    """A group costs 140 / 3; three cells do 90 until the last one comes."""
    play = first_burst(ARRIVALS[2] + 30.0, plan=replace(PLAN, cells=(4, 4, 3)))
    assert play.ready(3, 100.0) == [SwitchCell(0, TRAINING), SwitchCell(1, TRAINING)]
