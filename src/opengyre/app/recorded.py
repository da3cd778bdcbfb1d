"""A run read back from its folder: what it was set to, and what became of each execution.

Invariant: the advantage, the selection and the reason that are read back are those that training used,
one execution in memory at a time. A folder without a configuration is a recording without training.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from opengyre.app.claim import recorded_config
from opengyre.app.groups import group_draws
from opengyre.config.load import load_config
from opengyre.config.run import LearnerSection, RunConfig
from opengyre.core.errors import UserError
from opengyre.core.reasons import Untrained, VerdictKind
from opengyre.core.records import ExecutionRecord
from opengyre.store.rows import GroupRow, GroupState
from opengyre.store.run import RunStore
from opengyre.tree.ledger import Ledger, all_excluded
from opengyre.tree.record import ExecutionTree, sampled_by_role
from opengyre.tree.select import Selection, select
from opengyre.tree.weigh import advantages, draws_of, has_spread


@dataclass(frozen=True)
class Fate:
    """What the run made of an execution."""

    advantage: float | None
    """None when it has none: excluded, or its group is not whole."""
    why_untrained: str | None
    """A verdict's kind or a member of Untrained; None when it is trained."""
    step: int | None
    """The optimiser step that consumed its group."""


@dataclass(frozen=True)
class Execution:
    """One execution of a recorded run."""

    execution_id: str
    record: ExecutionRecord | None
    """None when it has not ended, or was recorded without a task."""
    fate: Fate


NAMED = 6
"""Runs that a message lists: more do not help to choose."""


def open_run(run: Path) -> RunStore:
    """The store of a run folder. Raises UserError."""
    if not (run / "run.sqlite").is_file():
        raise UserError(f"a run folder at {run}", "no run.sqlite in it", _runs_near(run))
    return RunStore(run / "run.sqlite")


def _runs_near(run: Path) -> str:
    """Such as those of a bench, which stand below the folder that it was told to keep."""
    below = sorted(one.parent for one in [*run.glob("*/run.sqlite"), *run.glob("*/*/run.sqlite")])
    names = ", ".join(str(one) for one in below[:NAMED])
    more = f" and {len(below) - NAMED} more" if len(below) > NAMED else ""
    return f"choose one of those in it: {names}{more}" if below else "pass a run's folder"


def config_of(run: Path, store: RunStore) -> RunConfig | None:
    """The configuration that the run had, its real seed included; None when it never had one."""
    config = recorded_config(store)
    if config is not None:
        return config
    if not (run / "config.toml").is_file():
        return None
    raw = load_config(run / "config.toml").model_dump()
    summary = run / "summary.json"
    if summary.is_file():
        raw["run"]["seed"] = _seed_of(summary)
    return RunConfig.model_validate(raw)


def _seed_of(summary: Path) -> int:
    try:
        return int(json.loads(summary.read_text())["seed"])
    except (ValueError, KeyError, TypeError) as error:
        action = "mend it, or remove it if the seed in config.toml is the run's"
        raise UserError(f"the run's seed in {summary}", repr(error), action) from error


class Recorded:
    """A run's executions, without their calls."""

    def __init__(self, store: RunStore, config: RunConfig | None) -> None:
        self._store = store
        self._config = config
        records = {record.execution_id: record for record in store.executions()}
        fates = _fates(records.values(), store.groups(), config)
        self._by_id = {
            name: Execution(name, records.get(name), fates.get(name, NO_VERDICT))
            for name in (*records, *store.recorded())
        }
        self.executions = [self._by_id[name] for name in store.recorded()]
        """Those that made a call."""

    def execution(self, execution_id: str) -> Execution:
        """Also one that ended without a call."""
        return self._by_id[execution_id]

    def tree(self, execution: Execution) -> ExecutionTree:
        """Its calls."""
        return ExecutionTree(self._store.calls(execution.execution_id))

    def selection(self, execution: Execution, tree: ExecutionTree) -> Selection:
        """The one that training made, or would have made."""
        config = self._config
        draws = random.Random(execution.execution_id)
        if config is not None and execution.record is not None:
            of_group = draws_of(group_draws(config, execution.record.group_id))
            draws = of_group(execution.execution_id)
        if config is None:
            return select(tree, LearnerSection().j_max, draws)
        return select(tree, config.learner.j_max, draws, config.cells.token_budget)

    def ledgers(self) -> Iterator[tuple[Execution, Ledger]]:
        """Where each execution's tokens went: as training booked it, or all of them excluded."""
        booked = self._store.ledgers()
        for execution in self.executions:
            yield execution, self._ledger(execution, booked)

    def ledger(self, execution: Execution) -> Ledger:
        """Of one execution."""
        return self._ledger(execution, self._store.ledgers())

    def _ledger(self, execution: Execution, booked: dict[str, Ledger]) -> Ledger:
        ledger = booked.get(execution.execution_id)
        if ledger is None:
            why = execution.fate.why_untrained or Untrained.GROUP_UNFINISHED.value
            calls = self._store.calls(execution.execution_id)
            ledger = all_excluded(sampled_by_role(calls), why)
        ledger.check()
        return ledger


NO_VERDICT = Fate(None, Untrained.NO_VERDICT.value, None)


def _fates(
    records: Iterable[ExecutionRecord], groups: list[GroupRow], config: RunConfig | None
) -> dict[str, Fate]:
    rows = {row.group_id: row for row in groups}
    members: defaultdict[str, list[ExecutionRecord]] = defaultdict(list)
    fates: dict[str, Fate] = {}
    for record in records:
        row = rows.get(record.group_id)
        if record.split == "heldout":
            fates[record.execution_id] = Fate(None, Untrained.HELD_OUT.value, None)
        elif record.verdict.kind is not VerdictKind.SCORED:
            step = row.step if row else None
            fates[record.execution_id] = Fate(None, record.verdict.kind.value, step)
        elif row is None or row.state is GroupState.OUTSTANDING:
            fates[record.execution_id] = Fate(None, Untrained.GROUP_UNFINISHED.value, None)
        else:
            members[record.group_id].append(record)
    normalise = config is None or config.learner.normalise_advantage
    for group_id, scored in members.items():
        fates |= _weighed(scored, rows[group_id].step, normalise=normalise)
    return fates


def _weighed(
    scored: list[ExecutionRecord], step: int | None, *, normalise: bool
) -> dict[str, Fate]:
    ordered = sorted(scored, key=lambda record: record.execution_id)
    rewards = [record.verdict.reward or 0.0 for record in ordered]
    why = None if has_spread(rewards) else Untrained.NO_SPREAD.value
    weights = advantages(rewards, normalise=normalise)
    return {
        record.execution_id: Fate(weight, why, step)
        for record, weight in zip(ordered, weights, strict=True)
    }


@dataclass(frozen=True)
class Books:
    """All ledgers of a run."""

    total: Ledger
    executions: list[tuple[str, str, Ledger]]
    """(execution, task, ledger), the one with the most untrained tokens first."""


def books_of(ledgers: Iterable[tuple[Execution, Ledger]]) -> Books:
    """Sum them up."""
    total = Ledger()
    executions = []
    for execution, ledger in ledgers:
        total.add(ledger)
        task = execution.record.task_id if execution.record else ""
        executions.append((execution.execution_id, task, ledger))
    total.check()
    executions.sort(key=lambda row: (row[2].owned - row[2].sampled, row[0]))
    return Books(total, executions)
