"""One execution's tree in the terminal."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from opengyre.app.excluded import last_line
from opengyre.app.recorded import Recorded, config_of
from opengyre.core.errors import UserError
from opengyre.core.reasons import VerdictKind
from opengyre.core.records import Call, ExecutionRecord
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree
from opengyre.tree.roles import trains
from opengyre.tree.select import Selection
from opengyre.tree.show import BranchLine, describe, fates_of

LISTED = 40
"""Executions that a listing shows: the newest, on one screen."""


def show_tree(run: Path, execution: str, console: Console) -> None:
    """Print a tree, or a listing for "list". Raises UserError."""
    if not (run / "run.sqlite").is_file():
        raise UserError(f"a run folder at {run}", "no run.sqlite in it", "pass a run's folder")
    with RunStore(run / "run.sqlite") as store:
        records = {record.execution_id: record for record in store.executions()}
        without = [name for name in store.recorded() if name not in records]
        names = [*records, *without]
        if execution == "list":
            if not names:
                console.print("no call has been recorded yet")
            for name in names[-LISTED:]:
                line = _headline(name, records.get(name))
                console.print(line, highlight=False, markup=False, soft_wrap=True)
            return
        name = _named(execution, names)
        tree = ExecutionTree(store.calls(name))
        recorded = Recorded(store, config_of(run, store))
        mine = recorded.execution(name)
        ledger, selection = recorded.ledger(mine), recorded.selection(mine, tree)
    record = records.get(name)
    trained = ledger.owned > 0  # not: held out, excluded, or of a group without spread
    drawn = _drawn(_headline(name, record), tree, selection if trained else None)
    console.print(drawn, highlight=False)
    parts = " + ".join(f"{tokens:,} {fate}" for fate, tokens in fates_of(ledger).items())
    console.print(f"{ledger.sampled:,} sampled = {parts or 0}", highlight=False, soft_wrap=True)
    if answered := _by_cell(tree.calls):
        console.print(answered, highlight=False, soft_wrap=True)
    if record is not None and record.verdict.detail:
        console.print(record.verdict.detail, highlight=False, markup=False, soft_wrap=True)


def _named(execution: str, names: list[str]) -> str:
    """The execution of that name, or the first whose name starts so. Raises UserError."""
    found = [name for name in names if name.startswith(execution)]
    if not found:
        near = names[-1] if names else "none: nothing has been recorded yet"
        raise UserError(
            f"an execution {execution}", f"no such one; the newest is {near}", "try 'list'"
        )
    return execution if execution in found else found[0]


def _by_cell(calls: Sequence[Call]) -> str:
    """Calls and sampled tokens by the cell that finished them; empty where none is recorded."""
    finished: Counter[int] = Counter()
    tokens: Counter[int] = Counter()
    for call in calls:
        if call.cell is not None:
            finished[call.cell] += 1
            tokens[call.cell] += len(call.output_ids)
    parts = [
        f"cell {cell} finished {finished[cell]} calls of {tokens[cell]:,} tokens"
        for cell in sorted(finished)
    ]
    ways = Counter(" → ".join(map(str, call.cells)) for call in calls if len(call.cells) > 1)
    parts += [f"{count} moved {way}" for way, count in sorted(ways.items())]
    return "; ".join(parts)


def _headline(name: str, record: ExecutionRecord | None) -> str:
    if record is None:
        return f"{name}  no verdict: it has not ended, or was recorded without a task"
    verdict = record.verdict
    reward = "-" if verdict.reward is None else f"{verdict.reward:.2f}"
    seconds = record.ended_at - record.started_at
    return (
        f"{record.execution_id}  {verdict.kind} ({verdict.ending})  reward {reward}  "
        f"{seconds:.1f} s  {record.task_id}"
    ) + ("" if verdict.kind is VerdictKind.SCORED else f"  {last_line(verdict)}")


def _drawn(headline: str, tree: ExecutionTree, selection: Selection | None) -> Tree:
    root = Tree(escape(headline))
    above = [root]
    for line in describe(tree, selection):
        del above[line.depth + 1 :]
        above.append(above[line.depth].add(_branch(line)))
    return root


def _branch(line: BranchLine) -> str:
    fork = f", branched: {line.fork}" if line.fork else ""
    beyond = f", {line.truncated_tokens} truncated" if line.truncated_tokens else ""
    left_out = "not selected" if trains(line.role) else "never trained"
    fate = "selected" if line.selected else left_out
    return (
        f"[bold]{line.role}[/] · {line.calls} calls · {line.context_tokens} context, "
        f"{line.sampled_tokens} sampled tokens · {fate}, {line.owned_tokens} owned, "
        f"{line.cut_tokens} cut{beyond}{fork}\n[dim]{escape(line.why)}[/]"
    )
