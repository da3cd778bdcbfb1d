"""What `opengyre simulate` does."""

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console

from opengyre.app.simulate.baselines import Choice, Result, best, run, splits
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.ensemble import (
    COLOCATE,
    ELASTIC,
    Ensemble,
    Fitted,
    calibrate,
    load_ensemble,
)
from opengyre.app.simulate.paper import Hours, Row, scene_of, table
from opengyre.app.simulate.presets import CALIBRATED, Span, load_preset, preset_names
from opengyre.app.simulate.show import (
    hours_words,
    paper_table,
    presets_table,
    result_json,
    results_table,
    scene_words,
)
from opengyre.app.simulate.tuned import tuned_table
from opengyre.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Of the command line."""

    seed: int
    json: Path | None
    sets: int
    tuned: bool
    ensemble: Path | None
    candidates: int
    out: Path


def run_simulate(what: str | None, options: SimulateOptions) -> None:
    """Do what the argument says. Raises UserError for none, and for an unknown preset."""
    match what:
        case None:
            wanted = f"what to simulate: paper, calibrate, {', '.join(preset_names())}"
            raise UserError(wanted, "nothing", "see: opengyre simulate --list")
        case "--list":
            list_presets()
        case "paper":
            table_of = run_tuned if options.tuned else run_paper
            table_of(options.ensemble, options.seed, options.sets, options.json)
        case "calibrate":
            run_calibrate(options.seed, options.candidates, options.out)
        case name:
            run_preset(name, options.ensemble, options.seed, options.json)


def write_json(value: object, path: Path) -> None:
    """Raises UserError when the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"to write {path}", str(error), "name another file") from error


def list_presets() -> None:
    """Print the presets."""
    Console().print(presets_table())


def run_paper(ensemble: Path | None, seed: int, sets: int, out: Path | None) -> None:
    """Print the published table, simulated."""
    console = Console()
    sources = load_ensemble(ensemble)
    words: list[str] = []

    def watch(name: str, hours: list[Hours]) -> None:
        words.append(hours_words(name, hours))

    rows = list(table(sources, seed, sets, watch))
    console.print(paper_table(rows))
    for line in [*words, *_paper_words(sources, rows)]:
        console.print(line, highlight=False, soft_wrap=True)
    if out is not None:
        write_json([row.as_json() for row in rows], out)


def _paper_words(ensemble: Ensemble, rows: list[Row]) -> list[str]:
    predicted = [row for row in rows if not row.calibrated]
    hits = sum(row.hit for row in predicted)
    sets = len(rows[0].simulated)
    return [
        f"{sets} of {len(ensemble.accepted)} accepted sets ({ensemble.candidates} tried); fitted to "
        f"{CALIBRATED} alone; spread is the standard deviation over sets",
        f"predicted rows inside the published span: {hits} of {len(predicted)}",
    ]


def run_tuned(ensemble: Path | None, seed: int, sets: int, out: Path | None) -> None:
    """Print what is left of the speed-ups once every policy is tuned."""
    sources = load_ensemble(ensemble)
    shown, figures = tuned_table(sources.accepted[:sets], seed)
    Console().print(shown)
    if out is not None:
        write_json(figures, out)


def run_preset(name: str, ensemble: Path | None, seed: int, out: Path | None) -> None:
    """Simulate one preset under each policy with the set in the ensemble's middle."""
    console = Console()
    preset = load_preset(name)
    scene = scene_of(name, middle(load_ensemble(ensemble)))
    console.print(scene_words(name, preset, scene), highlight=False, soft_wrap=True)
    results = [_policy(scene, policy, seed) for policy in preset.policies]
    console.print(results_table(results))
    if out is not None:
        write_json([result_json(one) for one in results], out)


def _policy(scene: Scene, policy: str, seed: int) -> Result:
    if policy == "async":
        return best(scene, splits(scene), seed)
    choices: dict[str, Choice] = {"elastic": ELASTIC, "colocate": COLOCATE}
    return run(scene, choices[policy], seed)


def middle(ensemble: Ensemble) -> Fitted:
    """The set whose speed-ups are nearest to the middle of the published ones."""
    published = load_preset(CALIBRATED).published

    def off(fitted: Fitted) -> float:
        return sum(_off(published[name], found) for name, found in fitted.speedups.items())

    if not ensemble.accepted:
        raise UserError("at least one accepted set", "none", "run: opengyre simulate calibrate")
    return min(ensemble.accepted, key=off)


def _off(span: Span, found: float) -> float:
    return abs(found - (span.low + span.high) / 2)


def run_calibrate(seed: int, candidates: int, out: Path) -> None:
    """Search for sets that fit; write them."""
    console = Console()
    found = 0

    def watch(number: int, fitted: Fitted | None) -> None:
        nonlocal found
        if fitted is not None:
            found += 1
            ups = ", ".join(f"{name} {value:.3f}" for name, value in fitted.speedups.items())
            console.print(f"candidate {number}: {ups} ({found} accepted)", highlight=False)

    ensemble = calibrate(seed, range(candidates), watch)
    write_json(msgspec.to_builtins(ensemble), out)
    console.print(f"{found} of {candidates} candidates fit; written to {out}", highlight=False)
