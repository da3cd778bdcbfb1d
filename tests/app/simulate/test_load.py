"""Calls are beside those of their own cell."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.app.simulate.test_fit import PLAN

from opengyre.app.report.lanes import Span
from opengyre.app.simulate.fit import fit
from opengyre.app.simulate.load import fit_load
from opengyre.app.simulate.measured import (
    Measured,
    MeasuredCall,
    MeasuredExecution,
    MeasuredGroup,
    MeasuredStep,
)
from opengyre.app.simulate.replay import measured_idle
from opengyre.app.simulate.stays import RolloutTimes
from opengyre.core.reasons import CellRole

OWN_S, SHARED_S = 0.02, 0.005
"""Of a call alone, and for each on its cell."""
END = 400.0


def calls_on(cell: int, at_once: int, answers: tuple[int, ...]) -> list[MeasuredCall]:
    """So many calls on the cell, one after another without a pause, all as long as they take."""
    calls = []
    for _ in range(at_once):
        at, turn = 0.0, 0
        while at < END:
            answer = answers[turn % len(answers)]
            ended = at + answer * (OWN_S + SHARED_S * at_once)
            calls.append(MeasuredCall(at, ended, 100, 0, answer, moved=False, cells=(cell,)))
            at, turn = ended, turn + 1
    return calls


def a_run(calls: list[MeasuredCall], *spans: Span) -> Measured:
    one = MeasuredExecution("g", 0.0, END, tuple(calls), trained=True)
    return Measured(
        name="uneven",
        plan=PLAN,
        policy="elastic",
        limit_s=math.inf,
        token_budget=100,
        groups=(MeasuredGroup("g", 0, 0.0, (one,)),),
        other_calls=(),
        steps=(MeasuredStep(END, 0, ("g",), 10.0, 0.0),),
        planned_steps=1,
        spans=spans or tuple(Span(cell, CellRole.ROLLOUT, 0.0, END) for cell in (0, 1)),
        levels=(),
    )


def unequal() -> list[MeasuredCall]:
    return [*calls_on(0, 1, (10, 30)), *calls_on(1, 9, (10, 30))]


def without_cells(calls: list[MeasuredCall]) -> list[MeasuredCall]:
    return [replace(call, cells=()) for call in calls]


def test_the_curve_is_found_where_cells_are_loaded_unequally() -> None:
    found = fit_load(a_run(unequal()))
    assert found.own_s == pytest.approx(OWN_S, rel=0.05)
    assert found.shared_s == pytest.approx(SHARED_S, rel=0.05)
    assert found.spread == 0
    assert round(found.curve[0].at_once) == 1
    assert round(found.curve[-1].at_once) == 9


def test_without_cells_it_is_missed_and_that_is_said() -> None:
    """All calls seem to have five at once on their cell."""
    blind = a_run(without_cells(unequal()))
    found = fit_load(blind)
    assert found.spread == found.used
    assert abs(found.own_s - OWN_S) + 5 * abs(found.shared_s - SHARED_S) > 0.3 * OWN_S
    notes = fit(blind).notes
    assert any("do not say which cell" in note for note in notes)
    assert not any("which cell" in note for note in fit(a_run(unequal())).notes)


def test_calls_without_a_cell_are_spread_over_those_that_serve() -> None:
    known, unknown = calls_on(0, 2, (20,)), without_cells(calls_on(1, 2, (20,)))
    found = fit_load(a_run([*known, *unknown]))
    assert 0 < found.spread < found.used
    known_at_once, unknown_at_once = 3.0, 2.0
    assert found.curve[0].at_once >= unknown_at_once - 0.1
    assert found.curve[-1].at_once <= known_at_once + 0.1
    assert found.curve[-1].at_once - found.curve[0].at_once > 0.5


def test_cells_that_serve_one_after_the_other_are_as_idle_as_they_are() -> None:
    """Calls of both would fit on one: spread evenly they seem to keep two cells busy."""
    first = [MeasuredCall(t, t + 2.0, 9, 0, 9, moved=False, cells=(0,)) for t in range(0, 400, 4)]
    beside = [replace(call, cells=(0,)) for call in first]
    known = fit(a_run([*first, *beside]))
    blind = fit(a_run(without_cells([*first, *beside])))
    trained = 10.0 / known.training.tokens_s / END / 2
    assert measured_idle(known) == pytest.approx(0.75 - trained, abs=0.01)
    assert measured_idle(blind) == pytest.approx(0.5 - trained, abs=0.01)


# -- stays -------------------------------------------------------------------------------------------

bounds = st.lists(st.floats(0.1, 20.0), min_size=1, max_size=8)


def spans_of(cell: int, lasts: list[float]) -> list[Span]:
    """Rollout and training by turns."""
    spans, at = [], 0.0
    for place, length in enumerate(lasts):
        role = CellRole.TRAINING if place % 2 else CellRole.ROLLOUT
        spans.append(Span(cell, role, at, at + length))
        at += length
    return spans


@given(
    st.tuples(bounds, bounds, bounds),
    st.lists(st.integers(0, 2), min_size=0, max_size=4),
    st.floats(0.0, 60.0),
    st.floats(0.0, 60.0),
)
@settings(max_examples=150, deadline=None)
def test_a_call_is_on_one_cell_at_a_time_in_the_order_of_its_cells(
    lasts: tuple[list[float], ...], cells: list[int], began: float, length: float
) -> None:
    spans = [span for cell, mine in enumerate(lasts) for span in spans_of(cell, mine)]
    call = MeasuredCall(began, began + length, 9, 0, 9, moved=False, cells=tuple(cells))
    stays = list(RolloutTimes(spans).stays(call))
    at = began
    for stay in stays:
        assert at <= stay.began < stay.ended <= call.ended
        at = stay.ended
    kept = iter(cells)
    assert all(stay.cell in kept for stay in stays), "a subsequence"


def test_a_moved_call_left_its_cell_when_that_left_rollout() -> None:
    spans = [*spans_of(0, [5.0, 50.0]), *spans_of(1, [60.0])]
    call = MeasuredCall(2.0, 9.0, 9, 0, 9, moved=True, cells=(0, 1))
    stays = [(s.cell, s.began, s.ended) for s in RolloutTimes(spans).stays(call)]
    assert stays == [(0, 2.0, 5.0), (1, 5.0, 9.0)]


def test_a_call_that_waits_for_a_cell_is_on_none_meanwhile() -> None:
    spans = spans_of(0, [5.0, 10.0, 20.0])
    held = MeasuredCall(4.0, 18.0, 9, 0, 9, moved=True, cells=(0, 0))
    late = MeasuredCall(7.0, 18.0, 9, 0, 9, moved=False, cells=(0,))
    times = RolloutTimes(spans)
    assert [(s.began, s.ended) for s in times.stays(held)] == [(4.0, 5.0), (15.0, 18.0)]
    assert [(s.began, s.ended) for s in times.stays(late)] == [(15.0, 18.0)]
