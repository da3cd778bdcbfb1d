"""What `opengyre simulate` does."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rich.console import Console

from opengyre.app.results import write_json
from opengyre.app.simulate.asked import check_options
from opengyre.app.simulate.baselines import (
    COLOCATE,
    ELASTIC,
    Choice,
    Result,
    Watch,
    best,
    run,
    splits,
)
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.calibrate_command import Calibration, calibrate
from opengyre.app.simulate.ensemble import Ensemble, Fitted, load_ensemble
from opengyre.app.simulate.fitting import in_calls
from opengyre.app.simulate.from_run import (
    answer_json,
    in_words,
    show,
    study,
    what_if_table,
    what_if_words,
)
from opengyre.app.simulate.outputs import check_outputs
from opengyre.app.simulate.paper import Hours, Row, scene_of, table
from opengyre.app.simulate.plain import plain_rows
from opengyre.app.simulate.policies import FITTED, SETTINGS, run_policies
from opengyre.app.simulate.presets import CALIBRATED, Span, load_preset, preset_names
from opengyre.app.simulate.progress import shown_workers
from opengyre.app.simulate.search import WANTED
from opengyre.app.simulate.show import (
    hours_words,
    paper_table,
    plain_table,
    plain_words,
    presets_table,
    result_json,
    results_table,
    scene_words,
)
from opengyre.app.simulate.tuned import tuned_table
from opengyre.app.simulate.whatif import Case, Change, answer, changed
from opengyre.core.errors import UserError

TABLE_SETS = 16
"""Of the published table, if not said: under two minutes of one core."""
TUNED_SETS = 1
"""Of the tuned table, which takes some hundred simulations of each."""


@dataclass(frozen=True, kw_only=True)
class SimulateOptions:
    """Of the command line."""

    seed: int
    json: Path | None
    tuned: bool
    plain: bool = False
    ensemble: Path | None
    sets: int | None = None
    candidates: int | None = None
    jobs: int | None = None
    calls: int | None = None
    wide: bool = False
    out: Path
    from_run: Path | None = None
    against: tuple[Path, ...] = ()
    change: Change = field(default_factory=Change)
    html: Path | None = None

    @property
    def processes(self) -> int:
        """That work side by side: one for each core that this one may use."""
        return self.jobs or len(os.sched_getaffinity(0))


def run_simulate(what: str | None, options: SimulateOptions) -> None:
    """Do what the argument says. Raises UserError for none, and for an unknown preset."""
    _check(what, options)
    if options.from_run is not None:
        if what is not None:
            found = f"both {what} and --from {options.from_run}"
            raise UserError("a preset or a run", found, "leave out one of them")
        run_from(options.from_run, options)
        return
    if options.against:
        raise UserError("--against beside --from RUN", "no --from", "say which run to fit")
    match what:
        case None:
            wanted = f"what to simulate: paper, policies, calibrate, {', '.join(preset_names())}"
            raise UserError(wanted, "nothing", "see: opengyre simulate --list")
        case "--list":
            list_presets()
        case "paper":
            run_paper(options)
        case "calibrate":
            run_calibrate(options)
        case "policies":
            compare_policies(options)
        case name if options.change:
            run_changed(name, options)
        case name:
            run_preset(name, options)


def _check(what: str | None, options: SimulateOptions) -> None:
    """What can be told before anything is computed."""
    check_options(what, vars(options))
    check_outputs(json=options.json, html=options.html)
    if options.html is not None:
        pages()


def compare_policies(options: SimulateOptions) -> None:
    """Print what was tried against elastic, and what it gains."""
    fitted = load_ensemble(options.ensemble).spread_out(FITTED)
    rows = run_policies(options.seed, options.sets or SETTINGS, fitted)
    if options.json is not None:
        write_json(rows, options.json)


def pages() -> ModuleType:
    """The module that draws. Raises UserError without plotly."""
    try:
        return import_module("opengyre.app.simulate.pages")
    except ImportError as error:
        raise UserError(
            "plotly, which draws", str(error), "install it with: pip install 'opengyre[report]'"
        ) from error


def run_from(run: Path, options: SimulateOptions) -> None:
    """Fit a recorded run, play it again, answer what if."""
    studied = study(run, options.change, options.against, seed=options.seed)
    show(studied, Console())
    if options.json is not None:
        write_json(studied.as_json(), options.json)
    if options.html is not None:
        pages().run_page(options.html, studied)


def run_changed(name: str, options: SimulateOptions) -> None:
    """A preset under elastic, against the same with what was asked for."""
    scene = scene_of(name, middle(load_ensemble(options.ensemble)))
    asked = changed(scene, ELASTIC, options.change)
    cases = [Case("the preset, elastic", scene, ELASTIC), Case(in_words(options.change), *asked)]
    answers = answer(cases, 1, options.seed)
    console = Console()
    console.print(what_if_table(answers))
    console.print(what_if_words(answers), highlight=False, soft_wrap=True)
    if options.json is not None:
        write_json([answer_json(one) for one in answers], options.json)
    if options.html is not None:
        pages().answers_page(options.html, f"simulation of {name}", answers)


def list_presets() -> None:
    """Print the presets."""
    Console().print(presets_table())


def run_paper(options: SimulateOptions) -> None:
    """Print the published table: simulated, with every policy tuned, or with plain baselines."""
    if options.tuned:
        run_tuned(options)
    elif options.plain:
        run_plain(options)
    else:
        run_table(options)


def run_plain(options: SimulateOptions) -> None:
    """Print the published table over baselines that are not at their best."""
    sets = load_ensemble(options.ensemble).spread_out(options.sets or TABLE_SETS)
    console = Console()
    with shown_workers(options.processes, console) as each:
        rows = plain_rows(sets, options.seed, each, wide=options.wide)
    console.print(plain_table(rows))
    console.print(plain_words(rows), highlight=False, soft_wrap=True)
    if options.json is not None:
        write_json([row.as_json() for row in rows], options.json)


def run_table(options: SimulateOptions) -> None:
    """Print the published table, simulated."""
    console = Console()
    sources = load_ensemble(options.ensemble)
    words: list[str] = []

    def watch(name: str, hours: list[Hours]) -> None:
        words.append(hours_words(name, hours))

    sets = sources.spread_out(options.sets or TABLE_SETS)
    with shown_workers(options.processes, console) as each:
        if options.calls is not None:
            sets = tuple(each(partial(in_calls, calls=options.calls), sets))
        rows = list(table(sets, options.seed, each, watch, wide=options.wide))
    console.print(paper_table(rows))
    for line in [*words, *_paper_words(sources, sets, rows)]:
        console.print(line, highlight=False, soft_wrap=True)
    if options.json is not None:
        write_json([row.as_json() for row in rows], options.json)
    if options.html is not None:
        pages().table_page(options.html, rows, scene_of(CALIBRATED, middle(sources)))


def _paper_words(ensemble: Ensemble, sets: Sequence[Fitted], rows: list[Row]) -> list[str]:
    predicted = [row for row in rows if not row.calibrated]
    hits, reached = sum(row.hit for row in predicted), sum(row.reached for row in predicted)
    come = f"{len(sets)} of {len(ensemble.accepted)} accepted sets ({ensemble.candidates} tried"
    if ensemble.search is not None:
        ancestors, of = (len({one.ancestor for one in some}) for some in (sets, ensemble.accepted))
        come += f", from {ancestors} of {of} blindly drawn ancestors"
    return [
        f"{come}); fitted to {CALIBRATED} alone; spread is the standard deviation over sets",
        f"predicted rows inside the published span: {hits} of {len(predicted)}; "
        f"published spans that some set reaches: {reached} of {len(predicted)}",
    ]


def run_tuned(options: SimulateOptions) -> None:
    """Print what is left of the speed-ups once every policy is tuned."""
    sources = load_ensemble(options.ensemble)
    shown, figures = tuned_table(sources.spread_out(options.sets or TUNED_SETS), options.seed)
    Console().print(shown)
    if options.json is not None:
        write_json(figures, options.json)


def run_preset(name: str, options: SimulateOptions) -> None:
    """Simulate one preset under each policy with the set in the ensemble's middle."""
    console = Console()
    preset = load_preset(name)
    scene = scene_of(name, middle(load_ensemble(options.ensemble)))
    console.print(scene_words(name, preset, scene), highlight=False, soft_wrap=True)
    with console.status("simulating …") as status:
        results = [
            _policy(scene, policy, options.seed, status.update) for policy in preset.policies
        ]
    console.print(results_table(results))
    if options.json is not None:
        write_json([result_json(one) for one in results], options.json)
    if options.html is not None:
        pages().preset_page(options.html, name, scene, results)


def _policy(scene: Scene, policy: str, seed: int, watch: Watch) -> Result:
    if policy == "async":
        return best(scene, splits(scene), seed, watch)
    choices: dict[str, Choice] = {"elastic": ELASTIC, "colocate": COLOCATE}
    return run(scene, choices[policy], seed, watch=watch)


def middle(ensemble: Ensemble) -> Fitted:
    """The set whose speed-ups are nearest to the middle of the published ones."""
    published = load_preset(CALIBRATED).published

    def off(fitted: Fitted) -> float:
        return sum(_off(published[name], found) for name, found in fitted.speedups.items())

    return min(ensemble.spread_out(len(ensemble.accepted)), key=off)


def _off(span: Span, found: float) -> float:
    return abs(found - (span.low + span.high) / 2)


def run_calibrate(options: SimulateOptions) -> None:
    """Search for sets that fit; write them."""
    if options.ensemble is not None:
        found = f"--ensemble {options.ensemble}"
        raise UserError(
            "a search from nothing, or from --out", found, f"name it with --out {options.ensemble}"
        )
    asked = Calibration(
        seed=options.seed,
        wanted=options.sets or WANTED,
        most=options.candidates,
        jobs=options.processes,
        out=options.out,
    )
    calibrate(asked)
