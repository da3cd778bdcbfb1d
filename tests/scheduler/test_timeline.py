"""Worked timelines with two cells of two executions, groups of two, one group a step."""

from dataclasses import replace
from typing import Any

import pytest

from opengyre.config.run import PolicyName
from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import (
    AdmitGroup,
    Begin,
    CellLost,
    CellReturned,
    CloseStep,
    Decision,
    DispatchGroups,
    Event,
    ExecutionEnded,
    ExecutionStarted,
    Finish,
    GroupDispatched,
    GroupReady,
    PauseRollout,
    Published,
    PublishWeights,
    RestartCore,
    ResumeRollout,
    SchedulePlan,
    StepDone,
    SwitchCell,
    Switched,
)
from opengyre.scheduler.factory import make_scheduler
from opengyre.scheduler.scheduler import Scheduler

ROLLOUT, TRAINING = CellRole.ROLLOUT, CellRole.TRAINING

PLAN = SchedulePlan(
    cells=(2, 2),
    group_size=2,
    groups_per_step=1,
    steps_per_burst=1,
    staleness_steps=1,
    total_steps=2,
)

OPENING: list[tuple[Event, list[Decision]]] = [
    (Begin(), [DispatchGroups(2)]),
    (GroupDispatched("a", 0), []),
    (GroupDispatched("b", 0), []),
    (ExecutionStarted("a0", "a"), []),
    (ExecutionStarted("a1", "a"), []),
    (ExecutionStarted("b0", "b"), []),
    (ExecutionStarted("b1", "b"), []),
    (ExecutionEnded("a1", "a"), []),
    (ExecutionEnded("a0", "a"), []),
]
"""Four live executions fill both cells; then two end."""

A_IS_TRAINED: list[tuple[Event, list[Decision]]] = [
    *OPENING,
    (GroupReady("a"), [SwitchCell(0, TRAINING), AdmitGroup("a", 0), CloseStep(0, ("a",))]),
    (Switched(0, TRAINING), []),
]
"""b's executions fit the satellite, so the core joins training (elastic)."""


def play(scheduler: Scheduler, timeline: list[tuple[Event, list[Decision]]]) -> None:
    for event, wanted in timeline:
        assert scheduler.decide(event, scheduler.state.now + 1.0) == wanted, event
        scheduler.state.check()


def test_elastic_core_trains_while_the_satellite_serves_and_returns_after_the_burst() -> None:
    scheduler = make_scheduler(replace(PLAN, total_steps=3), "elastic")
    play(
        scheduler,
        [
            *A_IS_TRAINED,
            (StepDone(0), [PublishWeights(1)]),
            (Published(1), [SwitchCell(0, ROLLOUT), DispatchGroups(1)]),
            (Switched(0, ROLLOUT), []),
        ],
    )
    assert scheduler.state.waterlevel == 4
    assert scheduler.state.rollout_capacity == 4


def test_elastic_core_stays_when_the_next_batch_is_ready_and_the_rest_covers_the_new_work() -> None:
    play(
        make_scheduler(replace(PLAN, total_steps=3), "elastic"),
        [
            *A_IS_TRAINED,
            (ExecutionEnded("b0", "b"), []),
            (ExecutionEnded("b1", "b"), [SwitchCell(1, TRAINING)]),
            (Switched(1, TRAINING), []),
            (GroupReady("b"), []),
            (StepDone(0), [PublishWeights(1)]),
            (
                Published(1),
                [
                    SwitchCell(1, ROLLOUT),
                    DispatchGroups(1),
                    AdmitGroup("b", 1),
                    CloseStep(1, ("b",)),
                ],
            ),
        ],
    )


def test_elastic_returns_every_cell_before_it_finishes() -> None:
    play(
        make_scheduler(PLAN, "elastic"),
        [
            *A_IS_TRAINED,
            (ExecutionEnded("b0", "b"), []),
            (ExecutionEnded("b1", "b"), [SwitchCell(1, TRAINING)]),
            (StepDone(0), [PublishWeights(1)]),
            (Published(1), [SwitchCell(0, ROLLOUT)]),
            (Switched(1, TRAINING), [SwitchCell(1, ROLLOUT)]),
            (Switched(0, ROLLOUT), []),
            (Switched(1, ROLLOUT), []),
            (GroupReady("b"), [SwitchCell(0, TRAINING), AdmitGroup("b", 1), CloseStep(1, ("b",))]),
            (Switched(0, TRAINING), [SwitchCell(1, TRAINING)]),
            (Switched(1, TRAINING), []),
            (StepDone(1), [PublishWeights(2)]),
            (Published(2), [SwitchCell(0, ROLLOUT), SwitchCell(1, ROLLOUT)]),
            (Switched(1, ROLLOUT), []),
            (Switched(0, ROLLOUT), [Finish()]),
            (CellLost(1), []),
            (CellLost(0), []),
        ],
    )


@pytest.mark.parametrize(("policy", "at_half"), [("elastic", True), ("forecast", False)])
def test_a_satellite_of_forecast_leaves_calls_half_the_room_until_it_has_learned(
    policy: PolicyName, *, at_half: bool
) -> None:
    plan = replace(PLAN, cells=(2, 2, 2), steps_per_burst=3, staleness_steps=0, total_steps=3)
    scheduler = make_scheduler(plan, policy)
    joins = SwitchCell(1, TRAINING)
    names = [f"{group}{number}" for group in "abc" for number in range(2)]
    play(
        scheduler,
        [
            (Begin(), [DispatchGroups(3)]),
            *((GroupDispatched(group, 0), []) for group in "abc"),
            *((ExecutionStarted(name, name[0]), []) for name in names),
            (ExecutionEnded("a0", "a"), []),
            (ExecutionEnded("a1", "a"), []),
            (
                GroupReady("a"),
                [SwitchCell(0, TRAINING), AdmitGroup("a", 0), CloseStep(0, ("a",))],
            ),
            (Switched(0, TRAINING), []),
            (ExecutionEnded("b0", "b"), []),
            (ExecutionEnded("b1", "b"), [joins] if at_half else []),
            (ExecutionEnded("c0", "c"), [] if at_half else [joins]),
        ],
    )


def test_elastic_core_serves_when_the_last_rollout_cell_dies_and_trains_when_work_is_done() -> None:
    play(
        make_scheduler(PLAN, "elastic"),
        [
            *A_IS_TRAINED,
            (CellLost(1), [SwitchCell(0, ROLLOUT)]),
            (Switched(0, ROLLOUT), []),
            (ExecutionEnded("b0", "b"), []),
            (ExecutionEnded("b1", "b"), [SwitchCell(0, TRAINING)]),
        ],
    )


def test_elastic_calls_the_last_satellite_back_when_the_cells_that_served_are_lost() -> None:
    play(
        make_scheduler(replace(PLAN, cells=(2, 2, 2)), "elastic"),
        [
            *A_IS_TRAINED[:-1],
            (Switched(0, TRAINING), [SwitchCell(1, TRAINING)]),
            (Switched(1, TRAINING), []),
            (CellLost(2), [SwitchCell(1, ROLLOUT)]),
        ],
    )


def test_elastic_core_that_stayed_trains_on_when_its_next_batch_is_done_and_no_other_is_ready() -> (
    None
):
    play(
        make_scheduler(replace(PLAN, cells=(2, 2, 2), steps_per_burst=2, total_steps=6), "elastic"),
        [
            (Begin(), [DispatchGroups(3)]),
            *((GroupDispatched(group, 0), []) for group in "abc"),
            (ExecutionEnded("a0", "a"), []),
            (ExecutionEnded("a1", "a"), []),
            (GroupReady("a"), [SwitchCell(0, TRAINING), AdmitGroup("a", 0), CloseStep(0, ("a",))]),
            (Switched(0, TRAINING), []),
            (StepDone(0), []),
            (ExecutionEnded("b0", "b"), []),
            (ExecutionEnded("b1", "b"), []),
            (GroupReady("b"), [SwitchCell(1, TRAINING), AdmitGroup("b", 1), CloseStep(1, ("b",))]),
            (Switched(1, TRAINING), []),
            (StepDone(1), [PublishWeights(1)]),
            (ExecutionEnded("c0", "c"), []),
            (ExecutionEnded("c1", "c"), []),
            (GroupReady("c"), []),
            (
                Published(1),
                [
                    SwitchCell(1, ROLLOUT),
                    DispatchGroups(2),
                    AdmitGroup("c", 2),
                    CloseStep(2, ("c",)),
                ],
            ),
            (Switched(1, ROLLOUT), []),
            (StepDone(2), []),
        ],
    )


def test_a_lost_core_is_restarted_once_and_trains_again_before_any_satellite() -> None:
    play(
        make_scheduler(replace(PLAN, cells=(2, 2, 2)), "elastic"),
        [
            *A_IS_TRAINED[:-2],
            (GroupReady("a"), [SwitchCell(0, TRAINING), AdmitGroup("a", 0), CloseStep(0, ("a",))]),
            (CellLost(0), [RestartCore()]),
            (CellLost(0), []),
            (Switched(0, TRAINING), []),
            (CellReturned(0), [SwitchCell(0, TRAINING)]),
            (Switched(0, TRAINING), [SwitchCell(1, TRAINING)]),
        ],
    )


def test_a_switch_that_ends_after_its_burst_is_taken_back() -> None:
    play(
        make_scheduler(replace(PLAN, cells=(2, 2, 2), total_steps=3), "elastic"),
        [
            *A_IS_TRAINED[:-1],
            (Switched(0, TRAINING), [SwitchCell(1, TRAINING)]),
            (StepDone(0), [PublishWeights(1)]),
            (Published(1), [SwitchCell(0, ROLLOUT), DispatchGroups(1)]),
            (Switched(1, TRAINING), [SwitchCell(1, ROLLOUT)]),
        ],
    )


def test_colocate_pauses_trains_on_all_cells_and_resumes_when_the_last_is_back() -> None:
    play(
        make_scheduler(replace(PLAN, total_steps=3), "colocate"),
        [
            *OPENING,
            (
                GroupReady("a"),
                [
                    PauseRollout(),
                    SwitchCell(0, TRAINING),
                    SwitchCell(1, TRAINING),
                    AdmitGroup("a", 0),
                    CloseStep(0, ("a",)),
                ],
            ),
            (Switched(1, TRAINING), []),
            (Switched(0, TRAINING), []),
            (StepDone(0), [PublishWeights(1)]),
            (
                Published(1),
                [SwitchCell(0, ROLLOUT), SwitchCell(1, ROLLOUT), DispatchGroups(1)],
            ),
            (Switched(0, ROLLOUT), []),
            (Switched(1, ROLLOUT), [ResumeRollout()]),
        ],
    )


def test_async_splits_the_cells_once_and_trains_as_groups_complete() -> None:
    play(
        make_scheduler(replace(PLAN, total_steps=3), "async"),
        [
            (Begin(), [SwitchCell(0, TRAINING), DispatchGroups(2)]),
            (Switched(0, TRAINING), []),
            *OPENING[1:],
            (GroupReady("a"), [AdmitGroup("a", 0), CloseStep(0, ("a",))]),
            (StepDone(0), [PublishWeights(1)]),
            (CellLost(0), [RestartCore()]),
            (CellReturned(0), [SwitchCell(0, TRAINING)]),
            (Published(1), [DispatchGroups(1)]),
        ],
    )


def test_async_trains_on_all_its_cells_when_a_standalone_pool_serves() -> None:
    play(
        make_scheduler(replace(PLAN, training_cells=2, standalone_capacity=1), "async"),
        [(Begin(), [SwitchCell(0, TRAINING), SwitchCell(1, TRAINING), DispatchGroups(2)])],
    )


def test_the_next_steps_groups_wait_for_the_step_under_way() -> None:
    play(
        make_scheduler(replace(PLAN, steps_per_burst=2, staleness_steps=0), "async"),
        [
            (Begin(), [SwitchCell(0, TRAINING), DispatchGroups(2)]),
            *OPENING[1:],
            (GroupReady("a"), [AdmitGroup("a", 0), CloseStep(0, ("a",))]),
            (ExecutionEnded("b0", "b"), []),
            (ExecutionEnded("b1", "b"), []),
            (GroupReady("b"), []),
            (StepDone(0), [AdmitGroup("b", 1), CloseStep(1, ("b",))]),
            (StepDone(1), [PublishWeights(1)]),
            (Published(1), [Finish()]),
        ],
    )


CONTRADICTIONS: list[tuple[int, Event, str]] = [
    (0, GroupDispatched("a", 0), "GroupDispatched"),
    (1, Begin(), "Begin"),
    (1, GroupDispatched("a", 1), "version 1 is not published"),
    (2, GroupDispatched("a", 0), "a is outstanding already"),
    (3, GroupDispatched("c", 0), "c was never ordered"),
    (3, ExecutionStarted("x0", "x"), "x is not outstanding"),
    (3, ExecutionEnded("x0", "x"), "x is not outstanding"),
    (3, GroupReady("x"), "x is not outstanding"),
    (8, ExecutionEnded("a1", "a"), "a1 ended before"),
    (8, GroupReady("a"), "a has live members"),
    (9, ExecutionEnded("a2", "a"), "a has no live member"),
    (9, StepDone(0), "step 0 is not closed"),
    (9, CellReturned(0), "ROLLOUT"),
    (10, GroupReady("a"), "a is ready or chosen already"),
    (11, StepDone(1), "step 1 is not under way; 0 is"),
    (11, Published(1), "open"),
]
"""After so many events of A_IS_TRAINED, what cannot be, and the words that say so."""


@pytest.mark.parametrize(("after", "event", "says"), CONTRADICTIONS)
def test_an_event_that_contradicts_the_past_is_refused(after: int, event: Event, says: str) -> None:
    scheduler = make_scheduler(PLAN, "elastic")
    play(scheduler, A_IS_TRAINED[:after])
    with pytest.raises(AssertionError, match=says):
        scheduler.decide(event, 99.0)


def test_time_that_goes_back_and_a_version_out_of_turn_are_refused() -> None:
    scheduler = make_scheduler(PLAN, "elastic")
    play(scheduler, [*A_IS_TRAINED, (StepDone(0), [PublishWeights(1)])])
    with pytest.raises(AssertionError, match="time went back"):
        scheduler.decide(CellLost(1), scheduler.state.now - 0.5)
    with pytest.raises(AssertionError, match="2 after 0"):
        scheduler.decide(Published(2), scheduler.state.now)


def test_a_group_older_than_its_order_is_refused() -> None:
    scheduler = make_scheduler(replace(PLAN, total_steps=3), "elastic")
    play(
        scheduler,
        [
            *A_IS_TRAINED,
            (StepDone(0), [PublishWeights(1)]),
            (Published(1), [SwitchCell(0, ROLLOUT), DispatchGroups(1)]),
        ],
    )
    with pytest.raises(AssertionError, match="ordered under 1"):
        scheduler.decide(GroupDispatched("c", 0), 99.0)


@pytest.mark.parametrize("training_cells", [0, 2, 3])
def test_async_refuses_a_split_with_an_empty_side(training_cells: int) -> None:
    with pytest.raises(UserError, match="both sides"):
        make_scheduler(replace(PLAN, training_cells=training_cells), "async")


@pytest.mark.parametrize(
    ("count", "least"),
    [
        ("group_size", 1),
        ("groups_per_step", 1),
        ("steps_per_burst", 1),
        ("total_steps", 1),
        ("staleness_steps", 0),
        ("standalone_capacity", 0),
        ("first_step", 0),
        ("first_version", 0),
    ],
)
def test_a_plan_refuses_a_count_that_makes_no_sense(count: str, least: int) -> None:
    accepted: dict[str, Any] = {count: least}
    assert getattr(replace(PLAN, **accepted), count) == least
    refused: dict[str, Any] = {count: least - 1}
    with pytest.raises(UserError, match=f"{count} of at least {least}"):
        replace(PLAN, **refused)


def test_a_plan_refuses_cells_that_serve_nobody() -> None:
    with pytest.raises(UserError, match="capacity"):
        replace(PLAN, cells=(2, 0))
    with pytest.raises(UserError, match="cells of at least 1"):
        replace(PLAN, cells=())
