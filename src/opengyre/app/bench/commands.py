"""What `opengyre bench …` does: measure, print, and write JSON if asked."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from opengyre.app.bench.jmax import JmaxSettings, measure_jmax
from opengyre.app.bench.policies import contenders, measure_all
from opengyre.app.bench.ratios import compare_runs
from opengyre.app.bench.show import (
    jmax_json,
    jmax_table,
    jmax_words,
    policies_json,
    policies_table,
    policies_words,
    simulate_words,
    tree_json,
    tree_table,
)
from opengyre.app.bench.tree import measure_trees
from opengyre.app.bench.workload import Workload
from opengyre.app.results import write_json
from opengyre.app.wall import WallClock
from opengyre.core.errors import UserError


def run_policies(
    workload: Workload, repeats: int, keep: Path | None, json: Path | None, *, forecast: bool
) -> None:
    """The policies, forecast if asked for; runs stay in `keep`, or go."""
    console = Console()
    entered = contenders(workload.cells, forecast=forecast)
    total = len(entered) * repeats * workload.steps
    with _folder(keep) as folder, Progress(console=console) as progress:
        bar = progress.add_task("starting", total=total)

        def tell(label: str, steps: int) -> None:
            progress.update(bar, description=f"{label}, step {steps}", advance=1)

        runs = measure_all(workload, entered, folder, repeats, tell)
    result = compare_runs(runs, workload.staleness_bound)
    console.print(policies_table(runs, result))
    for words in policies_words(runs, result):
        console.print(words, highlight=False)
    if keep is not None:
        words = simulate_words(sorted((keep / "runs").iterdir()))
        console.print(words, highlight=False, soft_wrap=True)
    if json is not None:
        write_json(policies_json(runs, result, workload), json)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="opengyre-bench-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"a new folder at {keep}", str(error), "name another with --keep"
        ) from error
    yield keep.resolve()


def run_tree(run: Path, groups: int, repeats: int, json: Path | None) -> None:
    """Tree-packed against path-expanded."""
    console = Console()
    result = measure_trees(run, groups, repeats, WallClock().now)
    console.print(tree_table(result))
    console.print(
        f"{result.executions} executions of {result.groups} groups, {result.trajectories} "
        f"trajectories in {result.micro_steps} micro-steps; weights of {result.model}",
        highlight=False,
    )
    if json is not None:
        write_json(tree_json(result), json)


def run_jmax(places: list[Path], settings: JmaxSettings, json: Path | None) -> None:
    """J_max ablated."""
    console = Console()
    result = measure_jmax(places, settings, WallClock().now)
    console.print(jmax_table(result))
    for words in jmax_words(result):
        console.print(words, highlight=False, soft_wrap=True)
    if json is not None:
        write_json(jmax_json(result), json)
