"""`opengyre export`: a run folder in, a folder of data out.

Invariant: one execution is in memory at a time; OUT appears whole or not at all.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from opengyre.app.export.atif import Scene, document
from opengyre.app.export.card import card
from opengyre.app.export.rows import rows_of
from opengyre.app.machine import commit
from opengyre.app.recorded import Execution, Recorded, config_of, open_run
from opengyre.core.errors import UserError
from opengyre.core.reasons import Role, VerdictKind
from opengyre.proxy.families.base import Family
from opengyre.store.parquet import RowWriter
from opengyre.tree.record import ExecutionTree
from opengyre.tree.roles import PRIORITY
from opengyre.tree.select import Selection

TABLE = "trajectories.parquet"
DOCUMENTS = "atif"
FORMATS = ("parquet", "atif")
SPLITS = ("train", "heldout")


@dataclass(frozen=True)
class Choice:
    """What of a run is exported."""

    formats: tuple[str, ...] = FORMATS
    split: str | None = None
    roles: tuple[Role, ...] = ()
    """Of trajectories in the Parquet file; none = all."""
    scored_only: bool = False

    def takes(self, execution: Execution) -> bool:
        """Whether an execution is exported."""
        record = execution.record
        if self.split is not None and (record is None or record.split != self.split):
            return False
        scored = record is not None and record.verdict.kind is VerdictKind.SCORED
        return scored or not self.scored_only


@dataclass
class Exported:
    """Counts."""

    executions: int = 0
    rows: int = 0
    tokens: int = 0
    documents: int = 0


def choice_of(
    formats: list[str], split: str | None, roles: list[str], *, scored_only: bool
) -> Choice:
    """The command line's options. Raises UserError."""
    for given, known, option in (
        (formats, FORMATS, "--format"),
        ([split] if split else [], SPLITS, "--split"),
        (roles, [role.value for role in PRIORITY], "--role"),
    ):
        for word in given:
            if word not in known:
                raise UserError(f"{option} {' or '.join(known)}", word, "choose one of them")
    chosen = tuple(dict.fromkeys(formats)) or FORMATS
    return Choice(chosen, split, tuple(map(Role, roles)), scored_only)


def export_run(
    run: Path,
    out: Path,
    choice: Choice,
    family: Callable[[], Family],
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Exported:
    """Write OUT. family: asked for only where text is decoded. Raises UserError.

    progress is told (executions done, of how many).
    """
    if out.exists():
        raise UserError(f"to make a folder {out}", "something is there", "name another folder")
    with open_run(run) as store:
        config = config_of(run, store)
        recorded = Recorded(store, config)
        chosen = [one for one in recorded.executions if choice.takes(one)]
        if not chosen:
            raise UserError(
                f"an execution with a call to export in {run}",
                f"none of {len(recorded.executions)} that fits the options",
                "let the run record more, or ask for less with --split and --scored-only",
            )
        model = str(config.policy.model) if config else None
        source = _Source(run.resolve().name, model, recorded, choice)
        counts = Exported()
        partial = _fresh(out.with_name(f".{out.name}.partial"))
        try:
            with ExitStack() as files:
                sinks = list(_sinks(source, partial, family, files))
                for done, execution in enumerate(chosen, 1):
                    source.pass_on(execution, sinks, counts)
                    progress(done, len(chosen))
            (partial / "README.md").write_text(card(source.run, choice.formats, counts.rows))
            partial.rename(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return counts


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)  # of an export that was killed
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"to make the folder {folder}", str(error), "name another folder"
        ) from error
    return folder


Sink = Callable[[Execution, ExecutionTree, Selection, Exported], None]


@dataclass(frozen=True)
class _Source:
    run: str
    model: str | None
    recorded: Recorded
    choice: Choice

    def pass_on(self, execution: Execution, sinks: list[Sink], counts: Exported) -> None:
        tree = self.recorded.tree(execution)
        selection = self.recorded.selection(execution, tree)
        counts.executions += 1
        for sink in sinks:
            sink(execution, tree, selection, counts)


def _sinks(
    source: _Source, folder: Path, family: Callable[[], Family], files: ExitStack
) -> Iterator[Sink]:
    if "parquet" in source.choice.formats:
        about: dict[str, object] = {"run": source.run, "commit": commit(), "model": source.model}
        yield _rows_into(source, files.enter_context(RowWriter(folder / TABLE, about)))
    if "atif" in source.choice.formats:
        (folder / DOCUMENTS).mkdir()
        scene = Scene(source.run, source.model, family())
        yield _documents_into(folder / DOCUMENTS, scene)


def _rows_into(source: _Source, writer: RowWriter) -> Sink:
    def sink(
        execution: Execution, tree: ExecutionTree, selection: Selection, counts: Exported
    ) -> None:
        for row in rows_of(source.run, source.model, execution, tree, selection):
            if not source.choice.roles or Role(row.role) in source.choice.roles:
                writer.add(row)
                counts.rows += 1
                counts.tokens += sum(row.mask)

    return sink


def _documents_into(folder: Path, scene: Scene) -> Sink:
    def sink(
        execution: Execution, tree: ExecutionTree, selection: Selection, counts: Exported
    ) -> None:
        made = document(scene, execution, tree, selection)
        if made is not None:
            path = folder / f"{execution.execution_id}.json"
            path.write_text(json.dumps(made, ensure_ascii=False))
            counts.documents += 1

    return sink
