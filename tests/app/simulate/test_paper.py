"""The table tells misses from hits, and its rows are what the command writes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opengyre.app.simulate.baselines import COLOCATE, ELASTIC, best, run, splits
from opengyre.app.simulate.ensemble import bundled_ensemble
from opengyre.app.simulate.paper import FRESH, Row, scene_of
from opengyre.app.simulate.plain import WAYS, plain_rows, plain_speedups
from opengyre.app.simulate.presets import Span
from opengyre.app.simulate.tuned import tuned_hours
from opengyre.app.simulate.workers import workers

FIELDS = {
    "workload",
    "baseline",
    "published_low",
    "published_high",
    "simulated_mean",
    "simulated_spread",
    "calibrated",
}


def row(*simulated: float) -> Row:
    return Row("somewhere", "async", Span(1.4, 1.5), simulated, calibrated=False)


@pytest.mark.parametrize(
    ("simulated", "residual"), [((1.3,), -0.1), ((1.4, 1.5), 0.0), ((1.6, 1.8), 0.2)]
)
def test_the_residual_is_the_way_to_the_nearest_published_value(
    simulated: tuple[float, ...], residual: float
) -> None:
    assert row(*simulated).residual == pytest.approx(residual)
    assert row(*simulated).hit is (residual == 0.0)


@pytest.mark.parametrize(
    ("simulated", "reached"),
    [((1.3, 1.39), False), ((1.3, 1.6), True), ((1.3, 1.4), True), ((1.51, 1.6), False)],
)
def test_a_span_is_reached_if_it_overlaps_with_what_the_sets_give(
    simulated: tuple[float, ...], *, reached: bool
) -> None:
    assert row(*simulated).reached is reached


def test_a_row_says_whether_its_workload_was_fitted_carried_over_or_drawn_anew() -> None:
    rows = [Row("x", "async", Span(1.0, 1.0), (1.0,), *how) for how in ((True,), (False,))]
    rows.append(Row("x", "async", Span(1.0, 1.0), (1.0,), calibrated=False, drawn_anew=True))
    assert [one.kind for one in rows] == ["fitted", "predicted", "drawn anew"]
    assert [one.as_json()["drawn_anew"] for one in rows] == [False, False, True]


def test_a_row_is_written_with_the_names_that_readers_expect() -> None:
    assert set(row(1.4, 1.6).as_json()) >= FIELDS


def test_the_table_has_all_rows_and_only_the_calibrated_preset_is_called_fitted(
    tmp_path: Path,
) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, "-m", "opengyre.app.cli", "simulate", "paper", "--sets", "1"]
    command += ["--jobs", "1"]
    done = subprocess.run(
        [*command, "--json", str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())
    assert len(rows) == 8
    assert {one["workload"] for one in rows if one["calibrated"]} == {"nl2repo-122b"}
    assert all(set(one) >= FIELDS for one in rows)
    assert "predicted" in done.stdout


def test_no_tuned_plan_is_staler_than_the_one_it_is_compared_with() -> None:
    found = tuned_hours("deepswe", bundled_ensemble().accepted[0], seed=0, steps=8, budgets=(0,))
    own = found.own.staleness
    assert own is not None
    for result in found.best.values():
        stale = result.outcome.staleness
        assert stale is not None
        assert stale.steps.mean <= own.steps.mean * 1.02
        assert stale.steps.p95 <= own.steps.p95


def test_a_plain_baseline_is_never_faster_than_the_same_at_its_best() -> None:
    fitted = bundled_ensemble().accepted[0]
    scene = scene_of("deepswe", fitted)
    elastic = run(scene, ELASTIC, FRESH).hours
    plain = plain_speedups(scene, FRESH)
    assert {name: tuple(ways) for name, ways in plain.items()} == WAYS
    fastest = best(scene, splits(scene), FRESH).hours / elastic
    assert plain["async"]["slowest split"] >= plain["async"]["half train"] >= fastest
    streaming = run(scene, COLOCATE, FRESH).hours / elastic
    assert plain["colocate"]["half the burst"] > plain["colocate"]["own burst"] >= streaming


def test_plain_rows_say_how_their_baseline_ran_and_what_was_published() -> None:
    with workers(1) as each:
        rows = plain_rows(bundled_ensemble().accepted[:1], 0, each)
    assert len(rows) == 16
    assert {(one.row.baseline, one.way) for one in rows} == {
        (baseline, way) for baseline, ways in WAYS.items() for way in ways
    }
    (of_24t,) = {
        one.row.published
        for one in rows
        if one.row.workload == "nl2repo-2.4t" and one.way == "own burst"
    }
    assert of_24t == Span(1.213, 1.213)
    assert all(one.as_json()["run_as"] == one.way for one in rows)
