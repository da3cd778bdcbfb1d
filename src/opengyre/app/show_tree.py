"""One execution's tree in the terminal."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from opengyre.app.claim import recorded_config
from opengyre.app.excluded import last_line
from opengyre.app.groups import group_draws
from opengyre.config.load import load_config
from opengyre.config.run import RunConfig
from opengyre.core.errors import UserError
from opengyre.core.reasons import VerdictKind
from opengyre.core.records import ExecutionRecord
from opengyre.store.run import RunStore
from opengyre.tree.ledger import Ledger
from opengyre.tree.record import ExecutionTree
from opengyre.tree.select import select
from opengyre.tree.show import BranchLine, describe
from opengyre.tree.weigh import draws_of

LISTED = 40
"""Executions that a listing shows: the newest, on one screen."""


def show_tree(run: Path, execution: str, console: Console) -> None:
    """Print a tree, or a listing for "list". Raises UserError."""
    if not (run / "run.sqlite").is_file():
        raise UserError(f"a run folder at {run}", "no run.sqlite in it", "pass a run's folder")
    with RunStore(run / "run.sqlite") as store:
        records = store.executions()
        if execution == "list":
            for record in records[-LISTED:]:
                console.print(_headline(record), highlight=False, markup=False, soft_wrap=True)
            return
        found = [r for r in records if r.execution_id.startswith(execution)]
        if not found:
            near = records[-1].execution_id if records else "none: nothing has ended yet"
            raise UserError(
                f"an execution {execution}", f"no such one; the newest is {near}", "try 'list'"
            )
        tree = ExecutionTree()
        for call in store.calls(found[0].execution_id):
            tree.add(call)
        config = recorded_config(store) or load_config(run / "config.toml")
        trained = _was_trained(store.ledgers().get(found[0].execution_id))
    console.print(_drawn(found[0], tree, config, trained=trained), highlight=False)
    if found[0].verdict.detail:
        console.print(found[0].verdict.detail, highlight=False, markup=False, soft_wrap=True)


def _was_trained(ledger: Ledger | None) -> bool:
    """False for held-out tasks, excluded executions, and groups that are not whole or do not differ."""
    return ledger is not None and ledger.trained + ledger.shared > 0


def _headline(record: ExecutionRecord) -> str:
    verdict = record.verdict
    reward = "-" if verdict.reward is None else f"{verdict.reward:.2f}"
    seconds = record.ended_at - record.started_at
    return (
        f"{record.execution_id}  {verdict.kind} ({verdict.ending})  reward {reward}  "
        f"{seconds:.1f} s  {record.task_id}"
    ) + ("" if verdict.kind is VerdictKind.SCORED else f"  {last_line(verdict)}")


def _drawn(
    record: ExecutionRecord, tree: ExecutionTree, config: RunConfig, *, trained: bool
) -> Tree:
    draws = draws_of(group_draws(config, record.group_id))  # those that training selected with
    draw = draws(record.execution_id)
    selection = select(tree, config.learner.j_max, draw, config.cells.token_budget)
    root = Tree(escape(_headline(record)))
    above = [root]
    for line in describe(tree, selection if trained else None):
        del above[line.depth + 1 :]
        above.append(above[line.depth].add(_branch(line)))
    return root


def _branch(line: BranchLine) -> str:
    fork = f", branched: {line.fork}" if line.fork else ""
    beyond = f", {line.truncated_tokens} truncated" if line.truncated_tokens else ""
    fate = "selected" if line.selected else "not selected"
    return (
        f"[bold]{line.role}[/] · {line.calls} calls · {line.context_tokens} context, "
        f"{line.sampled_tokens} sampled tokens · {fate}, {line.owned_tokens} owned, "
        f"{line.cut_tokens} cut{beyond}{fork}\n[dim]{escape(line.why)}[/]"
    )
