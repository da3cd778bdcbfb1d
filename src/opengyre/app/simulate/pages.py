"""The pages that `opengyre simulate --html` and `opengyre plan --html` write."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go

from opengyre.app.simulate import figures
from opengyre.app.simulate.baselines import Choice, Result
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.contest import MOVING
from opengyre.app.simulate.from_run import Studied, fit_words
from opengyre.app.simulate.paper import Row
from opengyre.app.simulate.plan import Advice
from opengyre.app.simulate.plan_words import advice_words, plan_words
from opengyre.app.simulate.presets import load_preset
from opengyre.app.simulate.replay import idle_share, scene_of_run
from opengyre.app.simulate.show import scene_words
from opengyre.app.simulate.whatif import Answer

SHORT = 16
"""Steps of the many runs of a sensitivity, where a preset has more."""
SEEDS = range(1, 4)
"""Of a sensitivity."""
MOST_EVENTS = 300_000
"""Of one simulation: a sensitivity makes a hundred of them, shorter ones, in a minute or two."""


def run_page(path: Path, studied: Studied) -> None:
    """Of a recorded run."""
    run, outcome = studied.fit.run, studied.outcome
    scene = scene_of_run(studied.fit)
    drawn = [
        figures.step_ends(run, outcome),
        figures.measured_cells(run),
        figures.cells(outcome, run.plan),
        figures.waterlevel(outcome, run.plan, run),
        figures.speed_under_load(studied.fit.load),
        figures.what_ifs(studied.answers),
        *_tornado(scene, Choice("colocate")),
    ]
    facts: dict[str, object] = {
        f"{one.name}, measured / simulated": f"{one.measured:.3f} / {one.simulated:.3f}"
        for one in studied.compared
    }
    facts |= dict(words.split(": ", 1) for words in fit_words(studied.fit))
    facts |= {
        f"{one.run} ({one.policy}), s/step": f"measured {one.measured_s:.3f}, predicted "
        f"{one.predicted_s:.3f}; times as fast as this run: {one.times_measured:.2f}, predicted "
        f"{one.times_predicted:.2f}"
        for one in studied.predicted
    }
    facts |= {f"note {i}": note for i, note in enumerate(studied.fit.notes, 1)}
    figures.write_page(path, f"simulation of {run.name}", drawn, facts)


def preset_page(path: Path, name: str, scene: Scene, results: Sequence[Result]) -> None:
    """Of a preset under each policy."""
    drawn = _published(name, results)
    for result in results:
        for figure in (
            figures.cells(result.outcome, scene.plan),
            figures.waterlevel(result.outcome, scene.plan),
        ):
            figure.update_layout(title=f"{figure.layout.title.text}: {result.choice}")
            drawn.append(figure)
    baselines = [result for result in results if result.choice.policy not in MOVING]
    small = all(result.outcome.events <= MOST_EVENTS for result in results)
    if small and baselines and len(baselines) < len(results):
        best = min(baselines, key=lambda result: result.hours)
        drawn += _tornado(scene, best.choice)
    facts: dict[str, object] = {"scene": scene_words(name, load_preset(name), scene)}
    facts |= {str(one.choice): _result_words(one, len(scene.plan.cells)) for one in results}
    if not small:
        facts["sensitivity"] = "left out: a hundred more simulations of this size would take long"
    figures.write_page(path, f"simulation of {name}", drawn, facts)


def _published(name: str, results: Sequence[Result]) -> list[go.Figure]:
    """Elastic over each baseline that the publication compares it with, by one run of each policy."""
    preset = load_preset(name)
    hours = {one.choice.policy: one.hours for one in results}
    rows = [
        Row(name, baseline, span, (hours[baseline] / hours["elastic"],), preset.calibrated)
        for baseline, span in preset.published.items()
        if baseline in hours and "elastic" in hours
    ]
    return [figures.speedups(rows)] if rows else []


def _result_words(result: Result, cells: int) -> str:
    outcome, stale = result.outcome, result.outcome.staleness
    assert stale is not None, "a finished simulation has its staleness"
    return (
        f"{result.hours:.2f} h, cells idle {idle_share(outcome, cells):.0%} of their time; staleness "
        f"in steps, mean/p95/maximum: {stale.steps.mean:.2f}/{stale.steps.p95}/{stale.steps.max}; "
        f"truncated executions: {outcome.tally.truncated}"
    )


def table_page(path: Path, rows: Sequence[figures.SpeedupRow], scene: Scene) -> None:
    """Of the published table; the sensitivity is that of the calibrated preset's middle set."""
    drawn = [figures.speedups(rows), *_tornado(scene, Choice("colocate"))]
    facts: dict[str, object] = {
        f"{one['workload']} over {one['baseline']}": (
            f"published {one['published_low']} to {one['published_high']}, simulated "
            f"{one['simulated_mean']:.3f} ± {one['simulated_spread']:.3f}"
        )
        for one in (row.as_json() for row in rows)
    }
    anew = (
        ", predicted workloads drawn anew"
        if any(row.as_json()["drawn_anew"] for row in rows)
        else ""
    )
    figures.write_page(path, f"published speed-ups, simulated{anew}", drawn, facts)


def answers_page(path: Path, title: str, answers: Sequence[Answer]) -> None:
    """Of a change to a preset."""
    newest = answers[-1]
    outcome, plan = newest.outcomes[0], newest.case.scene.plan
    drawn = [
        figures.what_ifs(answers),
        figures.cells(outcome, plan),
        figures.waterlevel(outcome, plan),
    ]
    figures.write_page(path, title, drawn, {})


def plan_page(path: Path, advice: Advice, worlds: Sequence[Scene]) -> None:
    """Of a search for a plan."""
    best = advice.best or max(advice.measures, key=lambda one: one.mean)
    result = best.candidate.run(worlds[0], 1, SHORT)
    cells = (worlds[0].plan.cells[0],) * best.candidate.cells_in(worlds[0])
    plan = replace(worlds[0].plan, cells=cells)
    names = [plan_words(one.candidate, worlds) for one in advice.measures]
    drawn = [figures.plans(names, advice)]
    words = plan_words(best.candidate, worlds)
    for figure in (figures.cells(result.outcome, plan), figures.waterlevel(result.outcome, plan)):
        figure.update_layout(title=f"{figure.layout.title.text}: {words}")
        drawn.append(figure)
    facts: dict[str, object] = {
        f"advice {i}": words for i, words in enumerate(advice_words(advice, worlds, None), 1)
    }
    figures.write_page(path, "plan", drawn, facts)


def _tornado(scene: Scene, baseline: Choice) -> list[go.Figure]:
    steps = min(scene.plan.total_steps, SHORT)
    as_is, found = figures.sensitivity(scene, baseline, SEEDS, steps)
    return [figures.tornado(as_is, found, baseline)]
