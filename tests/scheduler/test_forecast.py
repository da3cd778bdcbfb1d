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

STEP_DONE = 46.0
PUBLISHED = 146.0
"""Seconds into the run. So late that training groups of up to 40 keeps the three cells busy for little
of the time."""


class Play:
    """Tells a scheduler under forecast what happens; switches are done at once, or later."""

    def __init__(self, policy: Elastic | None = None, plan: SchedulePlan = PLAN) -> None:
        self._scheduler = Scheduler(plan, policy or Forecast())
        self._groups = 0
        self.switch_s = 0.0

    def tell(self, event: Event, at: float) -> list[SwitchCell]:
        """Returns the switches that this led to."""
        told = [one for one in self._decide(event, at) if isinstance(one, SwitchCell)]
        done = list(told)
        for switch in told:
            done += self.tell(Switched(switch.cell, switch.to), at + self.switch_s)
        return done

    def _decide(self, event: Event, at: float) -> list[Decision]:
        decisions = self._scheduler.decide(event, at)
        self._scheduler.state.check()
        return decisions

    def dispatch(self, at: float, groups: int = 3) -> None:
        for number in range(self._groups, self._groups + groups):
            self.tell(GroupDispatched(f"g{number}", self._scheduler.state.version), at)
            self.tell(ExecutionStarted(f"e{number}", f"g{number}"), at)
        self._groups += groups

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
        self.cost = self.meter.cost(state)
        return super().arrange(state)


def first_burst(
    cost: float,
    policy: Elastic | None = None,
    plan: SchedulePlan = PLAN,
    published: float = PUBLISHED,
) -> Play:
    """Nothing is known, so satellites join as soon as live work fits into half the room: one at the
    first group (two cells train), another when the last execution is over. Groups cost as told."""
    play = Play(policy, plan)
    play.tell(Begin(), 0.0)
    play.dispatch(0.0)
    joined = play.ready(0, ARRIVALS[0])
    assert joined == [SwitchCell(0, TRAINING), SwitchCell(1, TRAINING)] or plan is not PLAN
    play.ready(1, ARRIVALS[1])
    play.tell(ExecutionEnded("e2", "g2"), ARRIVALS[2])
    play.tell(GroupReady("g2"), ARRIVALS[2])
    home = play.tell(StepDone(plan.first_step, 3 * cost), STEP_DONE)
    assert home == [SwitchCell(1, ROLLOUT), SwitchCell(2, ROLLOUT)] or policy is not None
    play.tell(Published(plan.first_version + 1), published)
    play.dispatch(published)
    return play


def second_burst(play: Play) -> None:
    """Fifty seconds from the first group to the last."""
    for number, at in ((3, 200.0), (4, 220.0), (5, 250.0)):
        play.ready(number, at)


@pytest.mark.parametrize("resumed", [0, 5])
def test_a_group_costs_the_mean_of_all_that_were_trained_and_idle_cells_cost_nothing(
    resumed: int,
) -> None:
    """Three groups of 18, then three of 21.6; cells that train for no group do not count, and what was
    done before a resume was not measured."""
    policy = Measured()
    plan = replace(PLAN, first_step=resumed, first_version=resumed, total_steps=resumed + 3)
    play = first_burst(18.0, policy, plan)
    assert policy.cost == pytest.approx(18.0)
    assert policy.meter.load == pytest.approx(3 * 18.0 / (3 * PUBLISHED))
    play.nothing(190.0)
    assert policy.meter.spent == 0.0
    second_burst(play)
    assert policy.meter.spent > 50.0
    play.tell(StepDone(resumed + 1, 3 * 21.6), 346.0)
    play.tell(Published(resumed + 2), 346.0)
    assert policy.cost == pytest.approx(19.8)
    newest = 3 * 21.6 / (3 * (346.0 - PUBLISHED))
    assert policy.meter.load == pytest.approx((54.0 / (3 * PUBLISHED) + newest) / 2)


def test_nothing_is_known_of_what_nobody_measured() -> None:
    policy = Measured()
    first_burst(0.0, policy)
    assert policy.cost is None


@pytest.mark.parametrize(("cost", "joins"), [(19.9, False), (20.1, True), (0.0, True)])
def test_a_satellite_joins_when_the_cells_that_train_could_not_do_the_work_in_time(
    cost: float, joins: bool
) -> None:
    """In the second burst the first group comes; two more are 30 s away, as before. The core alone will
    have done 60 cell-seconds with a satellite beside it, so three groups must cost 20 each. If nobody
    measured what a group costs, nobody waits."""
    switches = first_burst(cost).ready(3, 200.0)
    assert (SwitchCell(1, TRAINING) in switches) is joins
    assert switches[0] == SwitchCell(0, TRAINING)


@pytest.mark.parametrize(("published", "joins"), [(PUBLISHED, False), (50.0, True)])
def test_where_training_is_a_large_part_of_all_time_nobody_waits(
    published: float, joins: bool
) -> None:
    """Three groups of nearly 20 in 146 s of three cells are a seventh, in 50 s two fifths."""
    switches = first_burst(19.9, published=published).ready(3, 200.0)
    assert (SwitchCell(1, TRAINING) in switches) is joins


def test_what_was_trained_already_is_no_work_and_time_that_passed_does_not_remain() -> None:
    """A group costs 18: of 54 the core does 1 a second, while 2 x 30 shrinks by 2 a second; from the
    sixth second on the work is more."""
    play = first_burst(18.0)
    assert play.ready(3, 200.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(205.9) == []
    assert play.nothing(206.1) == [SwitchCell(1, TRAINING)]


def test_work_that_the_core_did_counts_for_no_more_than_the_groups_that_it_had() -> None:
    """One group, 18: after 18 s the core is idle, and 36 are left however long it waits."""
    play = first_burst(18.0)
    play.ready(3, 200.0)
    assert play.nothing(260.0) == [SwitchCell(1, TRAINING)]
    late = first_burst(0.3)  # nobody is needed
    late.ready(3, 200.0)
    assert late.nothing(219.0) == []


def test_a_burst_that_comes_later_moves_the_forecast_half_way() -> None:
    """First 30 s from the first group to the last, then 50 s: 40 s are expected. A group costs 19.8 on
    average. One is done, so 39.6 are left against 2 x (40 - 20.2)."""
    play = first_burst(18.0)
    second_burst(play)
    play.tell(StepDone(1, 3 * 21.6), 346.0)
    play.tell(Published(2), 346.0)
    play.dispatch(346.0)
    assert play.ready(6, 400.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(420.1) == []
    assert play.nothing(420.3) == [SwitchCell(1, TRAINING)]


def test_where_live_work_fills_more_than_half_the_room_a_satellite_waits_until_all_are_needed() -> (
    None
):
    """Two executions live, and three places would stay. Of 54 the core does 18 until then; what is left
    is what three cells do in the 12 s that remain."""
    play = first_burst(18.0, plan=replace(PLAN, cells=(4, 4, 3)))
    assert play.ready(3, 200.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(217.9) == []
    assert play.nothing(218.1) == [SwitchCell(1, TRAINING)]


def test_where_all_cells_together_could_not_do_the_work_in_time_nobody_waits() -> None:
    """A group costs 31; three cells do 90 until the last one comes."""
    play = first_burst(31.0, plan=replace(PLAN, cells=(4, 4, 3)))
    assert play.ready(3, 200.0) == [SwitchCell(0, TRAINING), SwitchCell(1, TRAINING)]


@pytest.mark.parametrize("resumed", [0, 2])
def test_until_a_step_is_done_a_satellite_waits_until_live_work_fits_into_half_the_room(
    resumed: int,
) -> None:
    """Three executions live, then two, and five places would stay. A resume begins to learn anew."""
    plan = replace(
        PLAN, cells=(4, 2, 5), groups_per_step=4, first_step=resumed, total_steps=resumed + 2
    )
    play = Play(plan=plan)
    play.tell(Begin(), 0.0)
    play.dispatch(0.0, groups=4)
    assert play.ready(0, 10.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(19.0) == []
    assert play.tell(ExecutionEnded("e1", "g1"), 20.0) == [SwitchCell(1, TRAINING)]


def test_when_the_burst_has_all_its_groups_nobody_waits_even_if_nothing_was_learned() -> None:
    """Three groups more are under way. They fit into the four places, but not into two."""
    play = Play(plan=replace(PLAN, staleness_steps=1))
    play.tell(Begin(), 0.0)
    play.dispatch(0.0, groups=6)
    assert play.ready(0, 10.0) == [SwitchCell(0, TRAINING)]
    assert play.ready(1, 20.0) == []
    assert play.ready(2, 30.0) == [SwitchCell(1, TRAINING)]


def test_the_wait_for_the_next_group_begins_when_the_newest_one_came() -> None:
    """Groups of 10. One is to come, 20 s after the second one, as before: of 30 the core does 1 a second
    from 200 on, while 2 x 20 shrinks by 2 a second from 205 on; after 20 s the work is more."""
    play = first_burst(10.0)
    assert play.ready(3, 200.0) == [SwitchCell(0, TRAINING)]
    assert play.ready(4, 205.0) == []
    assert play.nothing(219.9) == []
    assert play.nothing(220.1) == [SwitchCell(1, TRAINING)]


def test_a_cell_that_is_on_its_way_to_training_does_no_work() -> None:
    """Switches take 4 s: of 54 nothing is done when the core is there, and 2 x 26 is less."""
    play = first_burst(18.0)
    play.switch_s = 4.0
    assert play.ready(3, 200.0) == [SwitchCell(0, TRAINING), SwitchCell(1, TRAINING)]


STEPWISE = replace(PLAN, groups_per_step=1, steps_per_burst=3, total_steps=9)
"""Bursts of three groups too, in a step each."""


def first_stepwise_burst(plan: SchedulePlan = STEPWISE) -> Play:
    """Each group costs 18 and is trained before the next one comes."""
    play = Play(plan=plan)
    play.tell(Begin(), 0.0)
    play.dispatch(0.0)
    for number, (ready, done) in enumerate(zip(ARRIVALS, (15.0, 30.0, STEP_DONE), strict=True)):
        play.ready(number, ready)
        play.tell(StepDone(number, 18.0), done)
    play.tell(Published(1), PUBLISHED)
    return play


def test_groups_that_wait_for_a_later_step_are_work_of_the_burst() -> None:
    """54 are less than 2 x 30 when the first group comes. The second one comes after 5 s and is for the
    next step: 49 are left, and that is more than 2 x 20."""
    play = first_stepwise_burst()
    play.dispatch(PUBLISHED)
    assert play.ready(3, 200.0) == [SwitchCell(0, TRAINING)]
    assert play.ready(4, 205.0) == [SwitchCell(1, TRAINING)]


def test_a_burst_that_is_cut_off_by_the_end_of_the_run_has_fewer_groups_to_come() -> None:
    """Two, so one more is to come, in 20 s: of 36 the core does 1 a second, while 2 x 20 shrinks by 2."""
    play = first_stepwise_burst(replace(STEPWISE, total_steps=5))
    play.dispatch(PUBLISHED, groups=2)
    assert play.ready(3, 200.0) == [SwitchCell(0, TRAINING)]
    assert play.nothing(203.9) == []
    assert play.nothing(204.1) == [SwitchCell(1, TRAINING)]
