"""What the commands of the command line do."""

import tempfile
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from opengyre.app.claim import check_free, claim
from opengyre.app.evaluate import evaluate_policy
from opengyre.app.excluded import why_excluded
from opengyre.app.paths import RunPaths
from opengyre.app.progress import Progress
from opengyre.app.report.page import write_report
from opengyre.app.sources import BUNDLED, bundled_tasks
from opengyre.app.stopping import until_done
from opengyre.app.summary import write_summary
from opengyre.app.train import Outcome, World, train
from opengyre.app.wall import RandomIds, WallClock
from opengyre.config.load import parse_config
from opengyre.config.run import RunConfig, SandboxSection
from opengyre.core.errors import EvaluatorError, UserError
from opengyre.sandbox.make import make_sandbox
from opengyre.store.run import RunStore
from opengyre.tasks.bundled import FAMILIES, write_bundled
from opengyre.tasks.check import check_tasks
from opengyre.tasks.load import load_tasks


def quickstart_config() -> Path:
    """The bundled configuration."""
    return Path(str(files("opengyre.app.quickstart").joinpath("quickstart.toml")))


def with_overrides(config: RunConfig, seed: int | None, name: str | None) -> RunConfig:
    """Options of the command line stand above the file."""
    changes: dict[str, object] = {}
    if seed is not None:
        changes["seed"] = seed
    if name is not None:
        changes["name"] = name
    raw = config.model_dump()
    raw["run"] |= changes
    return parse_config(raw, "options that fit the configuration")


def run_training(
    config: RunConfig, source: Path, *, resume: bool, seed: int | None, name: str | None
) -> None:
    """Train with progress on the terminal; leave summary and report in the run folder."""
    console = Console()
    config = with_overrides(config, seed, name)
    folder = config.run.folder / config.run.name
    check_free(folder, resume=resume)
    paths = RunPaths.make(folder)
    try:
        claim(config, source, folder)
        outcome = _train(config, paths, console, _to_go_on(source, config, seed), resume=resume)
    finally:
        paths.remove_private()
    with RunStore(paths.store) as store:
        summary = write_summary(config, outcome, store, paths.summary)
        excluded = why_excluded(store.executions())
    page = write_report(folder)
    _closing_words(console, summary, paths, page)
    if excluded:
        console.print(f"{excluded}; see: opengyre tree {folder} list", markup=False, soft_wrap=True)


def _train(
    config: RunConfig, paths: RunPaths, console: Console, if_stopped: str, *, resume: bool
) -> Outcome:
    clock = WallClock(_seconds_recorded(paths) if resume else 0.0)
    with Progress(console, clock, config.run.steps) as progress:
        world = World(clock, RandomIds(), progress.watch)
        return until_done(train(config, paths, world, resume=resume), if_stopped)


def _to_go_on(source: Path, config: RunConfig, seed: int | None) -> str:
    same_seed = "" if seed is None else f" --seed {seed}"
    words = f"opengyre train {source} --name {config.run.name}{same_seed} --resume"
    return f"stopped; go on with: {words}"


def _seconds_recorded(paths: RunPaths) -> float:
    """The clock of a resumed run goes on where the record ends."""
    with RunStore(paths.store) as store:
        return store.last_second()


def _closing_words(
    console: Console, summary: dict[str, object], paths: RunPaths, page: Path
) -> None:
    table = Table(box=None, show_header=False)
    shown = (
        "heldout_pass_before",
        "heldout_pass_after",
        "executions",
        "excluded",
        "steps",
        "role_switches",
        "calls_moved_with_kv",
        "calls_recomputed",
        "harness_visible_errors",
    )
    for key in shown:
        table.add_row(key.replace("_", " "), str(summary[key]))
    table.add_row("report", str(page))
    table.add_row("summary", str(paths.summary))
    console.print(table)


def run_evaluation(config: RunConfig, model: Path | None, *, greedy: bool) -> None:
    """Evaluate and print the pass rate."""
    console = Console()
    if model is not None:
        raw = config.model_dump()
        raw["policy"]["model"] = model
        config = RunConfig.model_validate(raw)
    folder = config.run.folder / f"{config.run.name}-eval"
    if any((folder / "checkpoints").glob("*")):
        raise UserError(
            f"to evaluate in {folder}", "a training run there", "choose another run.name"
        )
    paths = RunPaths.make(folder)
    paths.clear()
    clock = WallClock()
    with Progress(console, clock, 0) as progress:
        result = until_done(
            evaluate_policy(
                config, paths, World(clock, RandomIds(), progress.watch), greedy=greedy
            ),
            "stopped",
        )
    if not result.passed:
        with RunStore(paths.store) as store:
            excluded = why_excluded(store.executions())
        raise EvaluatorError(
            f"wanted a scored execution; found that {excluded}; see: opengyre tree {folder} list"
        )
    console.print(
        f"pass@1 {result.pass_rate:.3f} over {len(result.passed)} executions, "
        f"mean reward {sum(result.rewards) / max(len(result.rewards), 1):.3f}, "
        f"{result.excluded} excluded"
    )


def check_task_folder(source: str, count: int) -> bool:
    """Print a line a task; True when all are good."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="opengyre-check-") as name:
        private = Path(name)
        if source.startswith(BUNDLED):
            tasks = bundled_tasks(source, "train", count, private)
        else:
            tasks = load_tasks(Path(source))
        sandbox = make_sandbox(SandboxSection(), WallClock())
        results = until_done(check_tasks(tasks, sandbox, private), "stopped")
    for result in results:
        mark = "[green]good[/]" if result.good else "[red]bad [/]"
        words = escape(f"{result.task_id}  {'; '.join(result.faults)}")
        console.print(f"{mark} {words}", highlight=False, soft_wrap=True)
        for note in result.notes:
            console.print(f"     note: {escape(note)}", highlight=False, soft_wrap=True)
    return all(result.good for result in results)


def write_task_folders(family: str, into: Path, split: str, count: int, seed: int) -> None:
    """Write bundled tasks, or list the families."""
    console = Console()
    if family == "list":
        for name, found in FAMILIES.items():
            console.print(f"{name}  {found.space:,} tasks", highlight=False)
        return
    if split not in {"train", "heldout"}:
        raise UserError("--split train or heldout", split, "choose one of them")
    written = write_bundled(family, "train" if split == "train" else "heldout", count, seed, into)
    console.print(f"{len(written)} task folders in {into}")
