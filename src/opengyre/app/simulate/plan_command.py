"""What `opengyre plan` does: gather the worlds, search, and say what was found."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console

from opengyre.app.results import write_json
from opengyre.app.simulate.build import Scene, build
from opengyre.app.simulate.commands import pages
from opengyre.app.simulate.contest import Candidate, candidate_of
from opengyre.app.simulate.ensemble import Fitted, load_ensemble
from opengyre.app.simulate.fit import fit
from opengyre.app.simulate.measured import measured
from opengyre.app.simulate.outputs import check_outputs
from opengyre.app.simulate.paper import scene_of
from opengyre.app.simulate.plan import MOST_CELLS, Goal, search
from opengyre.app.simulate.plan_words import advice_json, advice_words, measures_table
from opengyre.app.simulate.presets import load_preset, workplace
from opengyre.app.simulate.replay import scene_of_run
from opengyre.core.errors import UserError

WHOLE = ("cells", "group_size", "groups_per_step", "steps_per_burst", "staleness_steps")
BELOW_ONE = ("tool_share", "training_share", "prefill_share", "answer_share")
LITTLE = 0.001
"""Where nothing at all would be divided by."""
AT_LEAST = {
    **dict.fromkeys(("cells", "group_size", "groups_per_step", "steps_per_burst", "slowdown"), 1.0),
    **dict.fromkeys(
        ("training_share", "answer_share", "capacity_share", "micro_step_share"), LITTLE
    ),
    **dict.fromkeys(("nominal_h", "length", "limit_h", "kv_move_tokens_s"), LITTLE),
    "execution_tokens": 100.0,  # some for each call
    "calls": 2.0,  # tools are between two of them
}
"""Of what --set may give; 0 for all others."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Of the command line."""

    from_run: Path | None
    preset: str | None
    parameters: tuple[str, ...]
    """NAME=VALUE each, over a preset's."""
    steps: int | None
    hours: float | None
    steps_per_hour: float | None
    staleness_limit: int | None
    cells: int | None
    most_cells: int | None
    sets: int
    seeds: int
    ensemble: Path | None
    json: Path | None
    html: Path | None


def run_plan(options: PlanOptions) -> None:
    """Search and print. Raises UserError."""
    console = Console()
    check_outputs(json=options.json, html=options.html)
    if options.html is not None:
        pages()  # that nothing can be drawn is told first too
    target = _target(options)
    _check_cells(options, target)
    worlds, origin, own = _worlds(options)
    plan = worlds[0].plan
    limit, given = options.staleness_limit, options.staleness_limit is not None
    if limit is None:
        limit = plan.steps_per_burst + plan.staleness_steps - 1
    goal = Goal(limit, target, options.cells, options.most_cells, own, as_fresh=not given)
    with console.status("simulating") as status:
        advice = search(worlds, goal, options.seeds, lambda at: status.update(f"simulating {at}"))
    console.print(measures_table(advice, worlds))
    for line in [*advice_words(advice, worlds, options.steps), origin]:
        console.print(line, highlight=False, soft_wrap=True)
    if options.json is not None:
        write_json(advice_json(advice, worlds), options.json)
    if options.html is not None:
        pages().plan_page(options.html, advice, worlds)


def _target(options: PlanOptions) -> float | None:
    """Steps an hour."""
    if options.steps_per_hour is not None:
        if options.hours is not None:
            raise UserError(
                "one target", "both --steps-per-hour and --hours", "leave out one of them"
            )
        return _above_zero("--steps-per-hour", options.steps_per_hour)
    if options.hours is None:
        return None
    if options.steps is None:
        raise UserError(
            "--steps beside --hours", "--hours alone", "say how many steps, with --steps"
        )
    return options.steps / _above_zero("--hours", options.hours)


def _check_cells(options: PlanOptions, target: float | None) -> None:
    for name, count in (("--cells", options.cells), ("--most-cells", options.most_cells)):
        if count is not None and count > MOST_CELLS:
            raise UserError(f"{name} of at most {MOST_CELLS:,}", f"{count:,}", f"lower {name}")
    if options.most_cells is None:
        return
    if options.cells is not None:
        raise UserError("one number of cells", "--cells and --most-cells", "leave out one of them")
    if target is None:
        raise UserError(
            "a target beside --most-cells",
            "none",
            "say what is wanted with --steps and --hours or --steps-per-hour, or give --cells",
        )


def _above_zero(name: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise UserError(f"{name} above 0", f"{value:g}", f"give a positive {name}")
    return value


def _worlds(options: PlanOptions) -> tuple[list[Scene], str, Candidate | None]:
    """The scenes to search in, where they come from, and the plan that ran."""
    if (options.from_run is None) == (options.preset is None):
        found = "neither" if options.preset is None else "both"
        raise UserError("--from RUN or --preset NAME", found, "give one of them")
    if options.from_run is not None:
        if options.parameters:
            raise UserError(
                "parameters of a preset", "--set with --from", "leave out --set, or use --preset"
            )
        run = fit(measured(options.from_run))
        origin = (
            f"from {options.from_run}: spread over {options.seeds} draws of its groups; that the "
            "recorded agents, and the cells' speed, stay as they were is not in it"
        )
        return [scene_of_run(run)], origin, candidate_of(run.run.policy, run.run.plan)
    assert options.preset is not None
    load_preset(options.preset)  # a wrong name is told before anything else
    sets = load_ensemble(options.ensemble).spread_out(options.sets)
    scenes = [_scene(options.preset, fitted, options.parameters) for fitted in sets]
    origin = (
        f"from {options.preset}: spread over {len(sets)} parameter sets that fit what is published, "
        f"and {options.seeds} seeds of each"
    )
    return scenes, origin, None


def _scene(preset: str, fitted: Fitted, parameters: Sequence[str]) -> Scene:
    if not parameters:
        return scene_of(preset, fitted)
    values = dict(workplace(preset, fitted.parameters, fitted.candidate).values)
    known = _parameters(values)
    for one in parameters:
        name, _, text = one.partition("=")
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose of {', '.join(sorted(known))}"
            raise UserError("--set with a parameter of the preset", repr(name), hint)
        try:
            values[name] = float(text)
        except ValueError as error:
            raise UserError(f"--set {name}=NUMBER", repr(one), "write a number") from error
        _check_value(name, values[name])
    return build(values)


class _Noted(dict[str, float]):
    """Remembers which of its values were read."""

    def __init__(self, values: Mapping[str, float]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> float:
        self.read.add(name)
        return super().__getitem__(name)


def _parameters(values: Mapping[str, float]) -> set[str]:
    """Those that a scene is made of; a search takes steps of its own number."""
    noted = _Noted(values)
    build(noted)
    return noted.read - {"total_steps"}


def _check_value(name: str, value: float) -> None:
    least = AT_LEAST.get(name, 0.0)
    whole = name in WHOLE and value != round(value)
    if not math.isfinite(value) or value < least or (name in BELOW_ONE and value >= 1) or whole:
        kind = "a whole number" if name in WHOLE else "a number"
        below = " and below 1" if name in BELOW_ONE else ""
        wanted = f"--set {name} with {kind} of at least {least:g}{below}"
        raise UserError(wanted, f"{value:g}", "give another value")
