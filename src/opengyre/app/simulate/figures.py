"""One function per figure of a simulation. Each returns a plotly figure; those of a run are shared."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Protocol

import plotly.graph_objects as go
from msgspec.structs import replace as with_fields

from opengyre.app.report import figures
from opengyre.app.report.page import page_of
from opengyre.app.simulate.baselines import Choice, run
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.load import LoadFit
from opengyre.app.simulate.measured import Measured
from opengyre.app.simulate.plan import Advice
from opengyre.app.simulate.replay import lanes_of, level_events
from opengyre.app.simulate.whatif import Answer
from opengyre.core.errors import UserError
from opengyre.scheduler.base import SchedulePlan
from opengyre.sim.outcome import Outcome
from opengyre.sim.script import stretched
from opengyre.sim.workload import Machine, Workload
from opengyre.store.rows import EventRow

MEASURED, SIMULATED, PUBLISHED, CHOSEN = "#577590", "#9b5de5", "#2a9d8f", "#e76f51"
TORNADO = 0.25
"""How far each parameter is turned either way."""
MOST_LANES = 64
"""Cells that are drawn, evenly taken, and publications likewise: more are a blur."""
MOST_POINTS = 20_000
"""Of a waterlevel: a page that a browser opens at once."""
MARGIN = 0.005
"""Of that axis, beyond the longest bar."""
LEAST_WIDTH = 0.05
"""Of a speed-up, either way, that a tornado's axis shows at least: less is no difference."""
ROW_HEIGHT = 34
"""Pixels of a line of a bar chart: room for its label."""


class SpeedupRow(Protocol):
    """A row of the published table, as the command that prints it has it."""

    def as_json(self) -> dict[str, object]:
        """Its values."""
        ...


def cells(outcome: Outcome, plan: SchedulePlan) -> go.Figure:
    """A lane per cell, as in the report of a run."""
    published = [
        EventRow(at=at, kind="published", fields={})
        for at in outcome.published
        if at < outcome.seconds
    ]
    every = -(-len(plan.cells) // MOST_LANES)
    shown = range(0, len(plan.cells), every)
    spans = lanes_of(outcome, len(plan.cells), every=every)
    figure = figures.cell_lanes(spans, published[:: -(-len(published) // MOST_LANES) or 1])
    of = "" if len(shown) == len(plan.cells) else f", {len(shown)} of {len(plan.cells)}"
    figure.update_layout(title=f"Simulated cells{of} (dotted: weights published)")
    return figure


def measured_cells(run_: Measured) -> go.Figure:
    """The lanes of the run itself."""
    figure = figures.cell_lanes(run_.spans, [])
    figure.update_layout(title="Measured cells")
    return figure


def waterlevel(outcome: Outcome, plan: SchedulePlan, run_: Measured | None = None) -> go.Figure:
    """Executions that wait or run, against the room for them; measured ones beside them."""
    capacities = [*plan.cells, plan.standalone_capacity]
    levels = level_events(outcome, capacities, MOST_POINTS)
    figure = figures.waterlevel(levels, outcome.seconds)
    figure.update_layout(title="Simulated waterlevel")
    if run_ is not None:
        figure.add_scatter(
            x=[at / figures.time_unit(outcome.seconds)[1] for at, _ in run_.levels],
            y=[level for _, level in run_.levels],
            name="measured waterlevel",
            mode="lines",
            line={"shape": "hv", "color": SIMULATED, "dash": "dash"},
        )
    return figure


def step_ends(run_: Measured, outcome: Outcome) -> go.Figure:
    """When each step ended, measured and simulated."""
    figure = go.Figure()
    last = max(run_.seconds, outcome.seconds)
    unit, each_s = figures.time_unit(last)
    for name, ends, colour in (
        ("measured", [step.at for step in run_.steps], MEASURED),
        ("simulated", outcome.steps, SIMULATED),
    ):
        figure.add_scatter(
            x=[end / each_s for end in ends],
            y=list(range(1, len(ends) + 1)),
            name=name,
            mode="lines+markers",
            line={"shape": "hv", "color": colour},
        )
    figure.update_layout(
        title="Optimiser steps, measured and simulated",
        xaxis={"title": unit, "range": [0, last / each_s]},
        yaxis={"title": "steps done", "rangemode": "tozero", "automargin": False},
    )
    return figure


def speed_under_load(load: LoadFit) -> go.Figure:
    """Duration of a call by how many ran at once on a cell."""
    figure = go.Figure()
    x = [point.at_once for point in load.curve]
    for name, y, colour in (
        ("measured", [point.measured_s for point in load.curve], MEASURED),
        ("fitted", [point.fitted_s for point in load.curve], SIMULATED),
    ):
        figure.add_scatter(x=x, y=y, name=name, mode="lines+markers", line={"color": colour})
    figure.update_layout(
        title="A call under load (mean duration)",
        xaxis={"title": "calls at once on a cell", "rangemode": "tozero"},
        yaxis={"title": "seconds", "rangemode": "tozero"},
    )
    return figure


def what_ifs(answers: Sequence[Answer]) -> go.Figure:
    """Speed-up of each case over the first."""
    figure = go.Figure()
    ordered = list(answers)[::-1]
    figure.add_bar(
        orientation="h",
        y=[one.case.name for one in ordered],
        x=[one.speedup for one in ordered],
        error_x={"array": [one.speedup_spread for one in ordered]},
        marker={"color": SIMULATED},
    )
    figure.add_vline(x=1.0, line={"width": 1, "dash": "dot", "color": "#888"})
    figure.update_layout(
        title=f"What if: speed against “{answers[0].case.name}”",
        xaxis={"title": "times as fast", "rangemode": "tozero"},
        height=170 + ROW_HEIGHT * len(ordered),
    )
    return figure


def plans(names: Sequence[str], advice: Advice) -> go.Figure:
    """Steps an hour of every finalist of a search, and what was wanted."""
    figure = go.Figure()
    ordered = advice.measures[::-1]
    figure.add_bar(
        orientation="h",
        y=list(names)[::-1],
        x=[one.mean for one in ordered],
        error_x={"array": [one.spread for one in ordered]},
        marker={"color": [CHOSEN if one is advice.best else SIMULATED for one in ordered]},
    )
    if advice.goal.steps_per_hour is not None:
        wanted = {"line": {"width": 1, "dash": "dot"}, "annotation": {"text": "wanted"}}
        figure.add_vline(x=advice.goal.steps_per_hour, **wanted)
    chosen = "" if advice.best is None else "; the recommended one stands out"
    figure.update_layout(
        title=f"Plans within the staleness limit{chosen}",
        xaxis={"title": "optimiser steps an hour", "rangemode": "tozero"},
        height=190 + ROW_HEIGHT * len(names),
    )
    return figure


def speedups(rows: Sequence[SpeedupRow]) -> go.Figure:
    """The published table: its spans, and the simulated means with their spread."""
    values = [row.as_json() for row in rows][::-1]
    names = [
        f"{one['workload']} / {one['baseline']}{' (fitted)' if one['calibrated'] else ''}"
        for one in values
    ]
    low = [float(str(one["published_low"])) for one in values]
    high = [float(str(one["published_high"])) for one in values]
    figure = go.Figure()
    figure.add_bar(
        orientation="h",
        y=names,
        base=low,
        x=[max(b - a, 0.006) for a, b in zip(low, high, strict=True)],  # one value: still a mark
        name="published",
        marker={"color": PUBLISHED},
    )
    figure.add_scatter(
        x=[one["simulated_mean"] for one in values],
        y=names,
        error_x={"array": [one["simulated_spread"] for one in values]},
        name="simulated, mean and spread",
        mode="markers",
        marker={"color": SIMULATED, "size": 10},
    )
    figure.update_layout(
        title="Speed-up of elastic, published and simulated",
        xaxis_title="times as fast",
        height=190 + ROW_HEIGHT * len(names),
    )
    return figure


# -- sensitivity -------------------------------------------------------------------------------------

World = tuple[Workload, Machine]
Turn = Callable[[Workload, Machine, float], World]


def _machine(*names: str) -> Turn:
    def turn(workload: Workload, machine: Machine, factor: float) -> World:
        return workload, with_fields(
            machine, **{name: getattr(machine, name) * factor for name in names}
        )

    return turn


def _load(name: str, script: str) -> Turn:
    """A field of the workload, and what it is called in recorded executions."""

    def turn(workload: Workload, machine: Machine, factor: float) -> World:
        fields: dict[str, object] = {name: getattr(workload, name) * factor}
        if workload.recorded:
            fields["recorded"] = stretched(workload.recorded, **{script: factor})
        return with_fields(workload, **fields), machine

    return turn


def _verdicts(workload: Workload, machine: Machine, factor: float) -> World:
    return with_fields(workload, evaluation_s=workload.evaluation_s * factor), machine


PARAMETERS: dict[str, Turn] = {
    "tool time": _load("tool_s", "waits"),
    "answer tokens": _load("answer_tokens", "answers"),
    "decode speed": _machine("decode_alone_tokens_s", "decode_full_tokens_s", "prefill_tokens_s"),
    "decode speed under load": _machine("decode_full_tokens_s", "prefill_tokens_s"),
    "training speed": _machine("train_tokens_s"),
    "optimiser step": _machine("step_s"),
    "publication": _machine("publish_s"),
    "switches": _machine("to_training_s", "to_rollout_s"),
    "verdicts": _verdicts,
}
"""What is turned; a share of the whole world each, in words of the table."""


def turned(scene: Scene, name: str, factor: float) -> Scene:
    """The scene with one parameter times a factor."""
    workload, machine = PARAMETERS[name](scene.workload, scene.machine, factor)
    return replace(scene, workload=workload, machine=machine)


def sensitivity(
    scene: Scene, baseline: Choice, seeds: Sequence[int], steps: int | None = None
) -> tuple[float, dict[str, tuple[float, float]]]:
    """Speed-up of elastic over a baseline as it is, and with each parameter a quarter less and more."""

    def speedup(of: Scene) -> float:
        def seconds(choice: Choice) -> float:
            return fmean(run(of, choice, seed, steps).outcome.seconds for seed in seeds)

        return seconds(baseline) / seconds(Choice("elastic"))

    found = {
        name: (
            speedup(turned(scene, name, 1 - TORNADO)),
            speedup(turned(scene, name, 1 + TORNADO)),
        )
        for name in PARAMETERS
    }
    return speedup(scene), found


def tornado(as_is: float, found: dict[str, tuple[float, float]], baseline: Choice) -> go.Figure:
    """The parameters that the speed-up depends on most, at the top."""
    ordered = sorted(found.items(), key=lambda one: abs(one[1][1] - one[1][0]))
    figure = go.Figure()
    for place, name, colour in ((0, "a quarter less", MEASURED), (1, "a quarter more", SIMULATED)):
        figure.add_bar(
            orientation="h",
            y=[parameter for parameter, _ in ordered],
            base=as_is,
            x=[both[place] - as_is for _, both in ordered],
            name=name,
            marker={"color": colour},
        )
    ends = [end for both in found.values() for end in both]
    low, high = min(*ends, as_is - LEAST_WIDTH), max(*ends, as_is + LEAST_WIDTH)
    figure.add_vline(x=as_is, line={"width": 1, "color": "#888"})
    figure.update_layout(
        title=f"Speed-up of elastic over {baseline}: {as_is:.2f}, and with each parameter turned",
        barmode="overlay",
        xaxis={"title": "times as fast", "range": [low - MARGIN, high + MARGIN]},
        height=190 + ROW_HEIGHT * len(ordered),
    )
    return figure


def write_page(
    path: Path, title: str, drawn: list[go.Figure], facts: dict[str, object], words: str = ""
) -> None:
    """One file that needs no network. Raises UserError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page_of(title, facts, drawn, words))
    except OSError as error:
        raise UserError(f"to write {path}", str(error), "name another file with --html") from error
