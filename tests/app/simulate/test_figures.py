"""Figures are drawn from what was simulated, and share their seconds; a page needs no network."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.app.simulate.test_fit import write_run

from opengyre.app.report import figures as of_runs
from opengyre.app.report.lanes import Span
from opengyre.app.simulate import figures, pages
from opengyre.app.simulate.baselines import Choice, run
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.from_run import study
from opengyre.app.simulate.replay import idle_share, lanes_of, level_events
from opengyre.app.simulate.whatif import Change
from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import SchedulePlan
from opengyre.sim.script import Script, Turn
from opengyre.sim.workload import Machine, Workload
from opengyre.store.rows import EventRow

PLAN = SchedulePlan(
    cells=(4, 4),
    group_size=2,
    groups_per_step=2,
    steps_per_burst=2,
    staleness_steps=0,
    total_steps=4,
)
MACHINE = Machine(
    decode_alone_tokens_s=10.0,
    decode_full_tokens_s=20.0,
    train_tokens_s=20.0,
    step_s=1.0,
    publish_s=1.0,
    to_training_s=0.5,
    to_rollout_s=0.5,
)
LOAD = Workload(
    calls=2.0,
    answer_tokens=20.0,
    observation_tokens=10.0,
    first_prompt_tokens=10.0,
    tool_s=3.0,
    member_spread=0.5,
)
SCENE = Scene(PLAN, LOAD, MACHINE)
ELASTIC, COLOCATE = Choice("elastic"), Choice("colocate")


class Row:
    def as_json(self) -> dict[str, object]:
        return {
            "workload": "w",
            "baseline": "async",
            "published_low": 1.4,
            "published_high": 1.5,
            "simulated_mean": 1.3,
            "simulated_spread": 0.1,
            "calibrated": False,
        }


@pytest.mark.parametrize("choice", [ELASTIC, COLOCATE, Choice("async", 1)])
def test_lanes_cover_every_cell_from_the_beginning_to_the_last_step(choice: Choice) -> None:
    outcome = run(SCENE, choice, 0).outcome
    spans = lanes_of(outcome, 2)
    for cell in range(2):
        mine = [span for span in spans if span.cell == cell]
        assert mine[0].start == 0
        assert mine[-1].end == outcome.seconds
        assert all(a.end == b.start for a, b in pairwise(mine))
    trained = sum(s.end - s.start for s in spans if s.role is CellRole.TRAINING)
    assert trained >= outcome.training_busy_s
    assert 0 <= idle_share(outcome, 2) < 1


def test_the_waterlevel_ends_at_zero_and_stays_within_what_is_dispatched() -> None:
    outcome = run(SCENE, ELASTIC, 0).outcome
    levels = level_events(outcome, [*PLAN.cells, 0])
    assert levels[-1].fields["waterlevel"] == 0
    assert max(float(row.fields["waterlevel"]) for row in levels) <= 2 * 2 * 2
    assert {row.fields["capacity"] for row in levels} <= {0.0, 4.0, 8.0}


def test_what_is_left_of_the_figures_of_a_large_world_is_as_in_the_whole() -> None:
    outcome = run(SCENE, ELASTIC, 0).outcome
    whole = level_events(outcome, [*PLAN.cells, 0])
    thinned = level_events(outcome, [*PLAN.cells, 0], most=10)
    every = -(-len(whole) // 10)
    assert every > 1
    assert thinned == whole[::every]
    assert lanes_of(outcome, 2, every=2) == [s for s in lanes_of(outcome, 2) if s.cell == 0]


def test_lanes_and_waterlevel_share_their_seconds() -> None:
    outcome = run(SCENE, ELASTIC, 0).outcome
    upper, lower = figures.cells(outcome, PLAN), figures.waterlevel(outcome, PLAN)
    assert max(upper.layout.xaxis.range) == max(lower.layout.xaxis.range) == outcome.seconds


@pytest.mark.parametrize(("seconds", "unit"), [(100.0, "seconds"), (90_000.0, "hours")])
def test_a_waterlevel_lasts_to_the_end_in_a_unit_that_can_be_read(
    seconds: float, unit: str
) -> None:
    rows = [EventRow(at=1.0, kind="waterlevel", fields={"waterlevel": 4.0, "capacity": 2.0})]
    drawn = of_runs.waterlevel(rows, seconds)
    assert drawn.layout.xaxis.title.text == unit
    assert all(trace.x[-1] == drawn.layout.xaxis.range[1] for trace in drawn.data)
    lanes = of_runs.cell_lanes([Span(0, CellRole.ROLLOUT, 0.0, seconds)], [])
    assert lanes.layout.xaxis.range == drawn.layout.xaxis.range


def test_differences_that_are_none_are_not_drawn_large() -> None:
    drawn = figures.tornado(1.0, {"tool time": (0.9999, 1.0001)}, COLOCATE)
    low, high = drawn.layout.xaxis.range
    assert low <= 0.95 < 1.05 <= high


def test_the_tornado_turns_every_parameter_and_puts_the_widest_last() -> None:
    as_is, found = figures.sensitivity(SCENE, COLOCATE, [0])
    assert set(found) == set(figures.PARAMETERS)
    drawn = figures.tornado(as_is, found, COLOCATE)
    widths = [abs(found[name][1] - found[name][0]) for name in drawn.data[0].y]
    assert widths == sorted(widths)


@pytest.mark.parametrize("name", figures.PARAMETERS)
def test_a_turned_parameter_changes_its_world_alone(name: str) -> None:
    script = Script(turns=(Turn(1.0, 10.0, 10.0, 20.0),), stop_s=1.0, trained_tokens=30.0)
    load = Workload(
        calls=1.0,
        answer_tokens=20.0,
        observation_tokens=0.0,
        first_prompt_tokens=10.0,
        tool_s=1.0,
        evaluation_s=2.0,
        recorded=((script, script),),
    )
    scene = replace(SCENE, workload=load)
    assert figures.turned(scene, name, 1.0) == scene
    assert figures.turned(scene, name, 2.0) != scene


def test_published_spans_and_simulated_means_share_their_lines() -> None:
    drawn = figures.speedups([Row()])
    assert drawn.data[0].y == drawn.data[1].y
    assert drawn.data[0].base == (1.4,)
    assert drawn.data[1].x == (1.3,)


def test_a_page_needs_no_network_and_tells_when_it_cannot_be_written(tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    figures.write_page(page, "<title>", [figures.speedups([Row()])], {"a": "b"})
    text = page.read_text()
    assert "<script src" not in text
    assert "&lt;title&gt;" in text
    with pytest.raises(UserError, match="--html"):
        figures.write_page(tmp_path, "t", [], {})


def test_the_page_of_a_preset_has_what_the_table_in_the_docs_says(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    results = [run(SCENE, choice, 0) for choice in (ELASTIC, COLOCATE, Choice("async", 1))]
    pages.preset_page(page, "deepswe", SCENE, results)
    text = page.read_text()
    for words in ("published and simulated", "each parameter turned", "cells idle"):
        assert words in text
    for result in results:
        assert f"Simulated cells (dotted: weights published): {result.choice}" in text
        assert f"Simulated waterlevel: {result.choice}" in text


def test_the_page_of_a_run_has_measured_beside_simulated(tmp_path: Path) -> None:
    write_run(tmp_path / "a", steps=4)
    write_run(tmp_path / "b", steps=3)
    page = tmp_path / "page.html"
    pages.run_page(page, study(tmp_path / "a", Change(cells=3), [tmp_path / "b"], seeds=1))
    text = page.read_text()
    for words in ("Measured cells", "Simulated cells", "measured waterlevel", "A call under load"):
        assert words in text
    for words in ("What if", "each parameter turned", "times as fast as this run"):
        assert words in text
