"""What `opengyre plan` does: gather the worlds, search, and say what was found."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from rich.console import Console

from opengyre.app.simulate.build import Scene, build
from opengyre.app.simulate.calibrate import measured
from opengyre.app.simulate.commands import pages, write_json
from opengyre.app.simulate.ensemble import Fitted, load_ensemble
from opengyre.app.simulate.fit import fit
from opengyre.app.simulate.paper import scene_of
from opengyre.app.simulate.plan import Goal, search
from opengyre.app.simulate.plan_words import advice_json, advice_words, measures_table
from opengyre.app.simulate.presets import load_preset, workplace
from opengyre.app.simulate.replay import scene_of_run
from opengyre.core.errors import UserError


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
    target = _target(options)
    worlds, origin = _worlds(options)
    plan = worlds[0].plan
    limit = options.staleness_limit
    if limit is None:
        limit = plan.steps_per_burst + plan.staleness_steps - 1
    goal = Goal(limit, target, options.cells, options.most_cells)
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


def _above_zero(name: str, value: float) -> float:
    if not 0 < value < float("inf"):
        raise UserError(f"{name} above 0", f"{value:g}", f"give a positive {name}")
    return value


def _worlds(options: PlanOptions) -> tuple[list[Scene], str]:
    """The scenes to search in, and where they come from."""
    if (options.from_run is None) == (options.preset is None):
        found = "neither" if options.preset is None else "both"
        raise UserError("--from RUN or --preset NAME", found, "give one of them")
    if options.from_run is not None:
        if options.parameters:
            raise UserError(
                "parameters of a preset", "--set with --from", "leave out --set, or use --preset"
            )
        scene = scene_of_run(fit(measured(options.from_run)))
        return [scene], (
            f"from {options.from_run}: spread over {options.seeds} draws of its groups; that the "
            "recorded agents, and the cells' speed, stay as they were is not in it"
        )
    assert options.preset is not None
    load_preset(options.preset)  # a wrong name is told before anything else
    sets = load_ensemble(options.ensemble).accepted[: options.sets]
    if not sets:
        raise UserError("at least one accepted set", "none", "run: opengyre simulate calibrate")
    scenes = [_scene(options.preset, fitted, options.parameters) for fitted in sets]
    return scenes, (
        f"from {options.preset}: spread over {len(sets)} parameter sets that fit what is published, "
        f"and {options.seeds} seeds of each"
    )


def _scene(preset: str, fitted: Fitted, parameters: Sequence[str]) -> Scene:
    if not parameters:
        return scene_of(preset, fitted)
    values = dict(workplace(preset, fitted.parameters, fitted.candidate).values)
    for one in parameters:
        name, _, text = one.partition("=")
        if name not in values:
            near = get_close_matches(name, values, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose of {', '.join(sorted(values))}"
            raise UserError("--set with a parameter of the preset", repr(name), hint)
        try:
            values[name] = float(text)
        except ValueError as error:
            raise UserError(f"--set {name}=NUMBER", repr(one), "write a number") from error
    return build(values)
