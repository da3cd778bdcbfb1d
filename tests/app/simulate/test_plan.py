"""What is recommended was simulated, keeps the limit and reaches the target; nothing else is said."""

import io
import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace as with_fields
from rich.console import Console
from tests.app.simulate.test_figures import LOAD, MACHINE, SCENE
from tests.app.simulate.test_fit import write_run
from typer.testing import CliRunner

from opengyre.app.cli import app
from opengyre.app.simulate.baselines import Choice
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.contest import candidate_of
from opengyre.app.simulate.ensemble import Ensemble, Fitted
from opengyre.app.simulate.from_run import in_words, show, study
from opengyre.app.simulate.plan import MOST_CELLS, Goal, search
from opengyre.app.simulate.plan_words import advice_words, measures_table
from opengyre.app.simulate.presets import CALIBRATED, load_preset
from opengyre.app.simulate.whatif import Case, Change, answer, change_of, changed, usual_cases
from opengyre.core.errors import UserError

ELASTIC = Choice("elastic")


def an_ensemble(folder: Path) -> Path:
    """A file with one parameter set."""
    preset = load_preset(CALIBRATED)
    values = preset.known_numbers | preset.assumed.draw(random.Random(1)) | {"cells": 3.0}
    values |= {"nominal_h": 1.7, "member_spread": 0.2}
    fitted = Fitted(
        candidate=0, parameters=values, execution_h=1.9, slowest_h=2.9, speedups={"async": 1.4}
    )
    path = folder / "sets.json"
    path.write_bytes(msgspec.json.encode(Ensemble(seed=0, candidates=1, accepted=(fitted,))))
    return path


def test_a_preset_is_planned_with_the_parameters_that_one_knows(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    words = ["--preset", CALIBRATED, "--ensemble", str(an_ensemble(tmp_path))]
    words += ["--staleness-limit", "0", "--seeds", "2", "--set", "training_share=0.02"]
    words += ["--set", "group_size=4", "--set", "groups_per_step=2", "--json", str(out)]
    result = CliRunner().invoke(app, ["plan", *words])
    assert result.exception is None, result.output
    found = msgspec.json.decode(out.read_bytes())
    assert found["recommended"]["staleness_p95"] == 0
    assert {plan["policy"] for plan in found["plans"]} == {
        "elastic",
        "forecast",
        "colocate",
        "async",
    }


def silent(_: str) -> None:
    pass


def find(scene: Scene, goal: Goal) -> tuple[str, ...]:
    advice = search([scene], goal, 2, silent)
    assert measures_table(advice, [scene]).row_count == len(advice.measures)
    return tuple(advice_words(advice, [scene], 10))


def test_every_plan_keeps_the_staleness_limit() -> None:
    for limit in (0, 2):
        advice = search([SCENE], Goal(limit), 2, silent)
        assert advice.measures
        assert max(one.staleness_p95 for one in advice.measures) <= limit


def test_the_fewest_cells_that_reach_the_target_are_recommended() -> None:
    scene = replace(SCENE, plan=replace(SCENE.plan, cells=(2,)))
    own = search([scene], Goal(1), 2, silent).best
    assert own is not None
    goal = Goal(1, steps_per_hour=own.mean * 1.2, most_cells=8)
    advice = search([scene], goal, 2, silent)
    assert advice.best is not None
    assert advice.best.low >= own.mean * 1.2
    fewer = [one for one in advice.measures if one.candidate.size() < advice.best.candidate.size()]
    assert all(one.low < own.mean * 1.2 for one in fewer)


def test_a_target_out_of_reach_is_said_to_be_so() -> None:
    words = find(SCENE, Goal(1, steps_per_hour=1e9, cells=2))
    assert words[0].startswith("nothing tried reaches")


def test_elasticity_does_not_pay_where_training_takes_no_time() -> None:
    scene = Scene(SCENE.plan, LOAD, with_fields(MACHINE, train_tokens_s=1e6, step_s=0.0))
    words = find(scene, Goal(1))
    assert any("does NOT pay" in line and "little to overlap" in line for line in words)
    assert words[0].split()[1].rstrip(",") in {"colocate", "async"}


STILL = with_fields(LOAD, member_spread=0.0)
"""All executions alike."""


@pytest.mark.parametrize(
    ("name", "scene"),
    [
        ("alike", Scene(SCENE.plan, STILL, MACHINE)),
        ("one cell", Scene(replace(SCENE.plan, cells=(8,)), LOAD, MACHINE)),
        ("train-bound", Scene(SCENE.plan, LOAD, with_fields(MACHINE, train_tokens_s=0.1))),
        ("no training", Scene(SCENE.plan, LOAD, with_fields(MACHINE, train_tokens_s=1e6))),
    ],
)
def test_elasticity_does_not_pay_where_nothing_can_overlap(name: str, scene: Scene) -> None:
    """All executions end together; or one cell does all; or nearly all of the time is training, in
    which every cell of colocate trains; or none of it is. In each the best other policy is as fast."""
    advice = search([scene], Goal(0), 2, silent)
    assert advice.gain is not None, name
    assert advice.gain.pays is False, (name, advice.gain.ratio)
    assert advice.gain.ratio >= 0.9, name
    if name == "one cell":
        words = advice_words(advice, [scene], None)
        assert "1 cell," in words[0]
        assert "a single cell" in words[1]


def test_elasticity_pays_where_a_tail_leaves_cells_idle_and_data_may_not_age() -> None:
    """Work of a few long executions and a long training: colocate waits, and so does every split."""
    load = with_fields(LOAD, calls=20.0, member_spread=0.9)
    plan = replace(SCENE.plan, cells=(8, 8, 8), group_size=4, groups_per_step=6)
    scene = Scene(plan, load, with_fields(MACHINE, train_tokens_s=30.0))
    gain = search([scene], Goal(0), 2, silent).gain
    assert gain is not None
    assert gain.pays, gain.ratio


@pytest.mark.parametrize("cells", [2, 3, 4])
def test_forecast_is_recommended_only_where_it_is_faster_than_elastic_by_more_than_chance(
    cells: int,
) -> None:
    load = with_fields(LOAD, calls=20.0, member_spread=0.9)
    plan = replace(SCENE.plan, cells=(8,) * cells, group_size=4, groups_per_step=6)
    scene = Scene(plan, load, with_fields(MACHINE, train_tokens_s=30.0))
    advice = search([scene], Goal(0), 3, silent)
    assert advice.best is not None
    elastic = next(one for one in advice.measures if one.candidate.policy == "elastic")
    forecast = next(one for one in advice.measures if one.candidate.policy == "forecast")
    stands_out = forecast.surely_over(elastic) > 1.0
    assert advice.best is (forecast if stands_out else elastic)


def test_cells_that_do_not_help_end_the_search() -> None:
    goal = Goal(0, steps_per_hour=1e9, most_cells=MOST_CELLS)
    scene = Scene(replace(SCENE.plan, cells=(2,)), STILL, MACHINE)
    advice = search([scene], goal, 2, silent)
    assert advice.flat
    assert max(one.candidate.size() for one in advice.measures) < 200
    assert "hardly faster" in advice_words(advice, [scene], None)[0]


def test_no_plan_has_older_data_than_the_one_that_ran() -> None:
    own = candidate_of("colocate", SCENE.plan)
    advice = search([SCENE], Goal(1, own=own, as_fresh=True), 2, silent)
    assert advice.own is not None
    assert advice.own.candidate == own
    assert all(one.no_older_than(advice.own) for one in advice.measures)
    assert advice.best is not None
    assert advice.best is advice.own or advice.best.surely_over(advice.own) > 1.0


def test_the_plan_that_ran_stays_where_none_is_faster_by_more_than_chance() -> None:
    """A single cell: every policy is the same, and the one that ran is not the first in any order."""
    scene = replace(SCENE, plan=replace(SCENE.plan, cells=(8,), steps_per_burst=1))
    own = candidate_of("forecast", scene.plan)
    advice = search([scene], Goal(0, own=own, as_fresh=True), 2, silent)
    assert advice.best is advice.own
    words = advice_words(advice, [scene], None)
    assert "recommended: forecast, 1 cell, mu 1, phi 0" in words[0]
    assert words[1].startswith("that is the plan that ran")


def test_a_better_plan_is_held_against_the_one_that_ran() -> None:
    load = with_fields(LOAD, calls=20.0, member_spread=0.9)
    plan = replace(SCENE.plan, cells=(8, 8, 8), group_size=4, groups_per_step=6)
    scene = Scene(plan, load, with_fields(MACHINE, train_tokens_s=30.0))
    own = candidate_of("colocate", scene.plan)
    advice = search([scene], Goal(1, own=own, as_fresh=True), 2, silent)
    assert advice.best is not advice.own
    words = advice_words(advice, [scene], None)
    assert "times as fast as the plan that ran (colocate, 3 cells, mu 2, phi 0)" in words[1]


def test_without_a_target_the_fastest_is_recommended_however_wide_the_spread() -> None:
    slow = replace(SCENE, machine=with_fields(MACHINE, decode_alone_tokens_s=0.01))
    advice = search([slow, SCENE], Goal(0), 2, silent)
    assert advice.best is not None
    assert advice.best.low < 0


def test_the_most_cells_hold_for_sets_of_several_sizes() -> None:
    worlds = [SCENE, replace(SCENE, plan=replace(SCENE.plan, cells=(4,) * 4))]
    goal = Goal(0, steps_per_hour=1e9, most_cells=6)
    advice = search(worlds, goal, 2, silent)
    assert max(one.candidate.cells_in(w) for one in advice.measures for w in worlds) <= 6
    with pytest.raises(UserError, match="--most-cells of at least"):
        search(worlds, replace(goal, most_cells=1), 2, silent)


def test_ratios_are_against_the_first_case_on_the_same_seeds() -> None:
    first = Case("as it ran", SCENE, ELASTIC)
    same, more = answer(
        [first, first, Case("4 cells", *changed(SCENE, ELASTIC, Change(cells=4)))], 2
    )[1:]
    assert (same.speedup, same.speedup_spread) == (1.0, 0.0)
    assert more.speedup >= 1.0
    assert len(more.case.scene.plan.cells) == 4


def test_the_usual_questions_change_one_thing_each() -> None:
    cases = usual_cases(SCENE, ELASTIC)
    assert [case.name for case in cases] == [
        "as it ran",
        "4 cells",
        "forecast",
        "colocate",
        "async, 1 train",
        "bursts of 1 instead of 2",
        "bursts of 4 instead of 2",
    ]


def test_no_figure_is_cut_on_a_narrow_terminal(tmp_path: Path) -> None:
    write_run(tmp_path / "a-run-with-a-long-name", steps=4)
    run = tmp_path / "a-run-with-a-long-name"
    studied = study(run, Change(cells=3, burst=2), [run], seeds=2)
    console = Console(width=64, file=io.StringIO())
    show(studied, console)
    assert isinstance(console.file, io.StringIO)
    assert "…" not in console.file.getvalue()


def test_a_recorded_run_answers_what_was_asked(tmp_path: Path) -> None:
    write_run(tmp_path, steps=4)
    studied = study(tmp_path, Change(cells=3, burst=2), seeds=2)
    assert studied.compared[0].measured == studied.fit.run.seconds / 4
    assert [one.case.name for one in studied.answers] == ["as it ran", "3 cells, bursts of 2"]
    assert in_words(Change(policy="async", training_cells=1)) == "async, 1 training"


def test_a_run_of_many_cells_is_asked_about_a_few_splits() -> None:
    scene = replace(SCENE, plan=replace(SCENE.plan, cells=(4,) * 64))
    names = [case.name for case in usual_cases(scene, ELASTIC)]
    assert 2 <= sum(name.startswith("async") for name in names) <= 8


def test_a_split_is_for_async_alone() -> None:
    with pytest.raises(UserError, match="beside --policy async"):
        changed(SCENE, ELASTIC, Change(training_cells=1))
    asked = Change(training_cells=1)
    assert changed(SCENE, Choice("async", 1), asked)[1].training_cells == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cells": 10**9}, "--cells of at most"),
        ({"burst": 10**9}, "--burst of at most"),
        ({"staleness": 10**9}, "--staleness of at most"),
        ({"cells": 0}, "--cells of at least 1"),
        ({"burst": 0}, "--burst of at least 1"),
        ({"staleness": -1}, "--staleness of at least 0"),
        ({"policy": "elastik"}, "did you mean elastic"),
    ],
)
def test_what_no_plan_can_have_is_one_clear_message(changes: dict[str, object], said: str) -> None:
    whole = {
        "cells": None,
        "policy": None,
        "training_cells": None,
        "burst": None,
        "staleness": None,
    }
    with pytest.raises(UserError, match=said):
        change_of(**(whole | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--from RUN or --preset NAME"),
        (["--preset", "nothing"], "a preset:"),
        (["--preset", "deepswe", "--set", "cels=4"], "did you mean cells"),
        (["--preset", "deepswe", "--set", "cells=many"], "--set cells=NUMBER"),
        (["--preset", "deepswe", "--set", "execution_h=2"], "a parameter of the preset"),
        (["--preset", "deepswe", "--set", "cells=0"], "at least 1"),
        (["--preset", "deepswe", "--set", "cells=2.5"], "a whole number"),
        (["--preset", "deepswe", "--set", "training_share=1"], "below 1"),
        (["--preset", "deepswe", "--set", "calls=1"], "at least 2"),
        (["--preset", "deepswe", "--set", "slowdown=nan"], "--set slowdown"),
        (["--preset", "deepswe", "--most-cells", "8"], "a target beside --most-cells"),
        (["--preset", "deepswe", "--most-cells", "8", "--cells", "4"], "one number of cells"),
        (["--preset", "deepswe", "--cells", "1000000"], "--cells of at most"),
        (["--preset", "deepswe", "--json", "/dev/null/x"], "to write /dev/null/x"),
        (["--preset", "deepswe", "--html", "/"], "--html"),
        (["--preset", "deepswe", "--hours", "4"], "--steps beside --hours"),
        (["--preset", "deepswe", "--hours", "0", "--steps", "4"], "--hours above 0"),
        (["--preset", "deepswe", "--hours", "4", "--steps-per-hour", "4"], "one target"),
    ],
)
def test_a_plan_that_cannot_be_searched_is_one_clear_message(
    tmp_path: Path, words: list[str], said: str
) -> None:
    result = CliRunner().invoke(app, ["plan", *words, "--ensemble", str(an_ensemble(tmp_path))])
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)
