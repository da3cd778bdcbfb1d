"""What happened, written to the store as it happens and kept in figures for the terminal."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

import msgspec

from opengyre.app.groups import Group
from opengyre.app.steps import StepResult
from opengyre.cluster.base import SwitchReport
from opengyre.core.protocols import Clock
from opengyre.core.reasons import CellRole, VerdictKind
from opengyre.core.records import ExecutionRecord
from opengyre.learner.stats import MicroStats
from opengyre.scheduler.state import State
from opengyre.store.rows import EventRow, GroupRow, GroupState, StepRow
from opengyre.store.run import RunStore


@dataclass
class Figures:
    """The newest figures, for whoever draws them."""

    roles: dict[int, CellRole] = field(default_factory=dict)
    waterlevel: int = 0
    capacity: int = 0
    excluded: int = 0
    """Executions whose verdict is not scored."""
    steps: list[StepRow] = field(default_factory=list)
    role_switches: int = 0
    phase: str = "starting"
    phase_done: int = 0
    phase_total: int = 0


class History:
    """Takes what the live world reports."""

    def __init__(
        self, store: RunStore, clock: Clock, cells: int, changed: Callable[[Figures], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._changed = changed
        self.figures = Figures(roles=dict.fromkeys(range(cells), CellRole.ROLLOUT))
        self._last_level = (-1, -1)

    async def phase(self, name: str, total: int) -> None:
        """A new phase begins: an evaluation, training."""
        self.figures.phase, self.figures.phase_total, self.figures.phase_done = name, total, 0
        await self._event("phase", name=name)

    async def role(self, cell: int, role: CellRole) -> None:
        """A cell's role from now on."""
        self.figures.roles[cell] = role
        await self._event("role", cell=float(cell), role=role.value)

    async def resumed(self) -> None:
        """All cells serve when a run goes on, whatever they did when it stopped."""
        last = {
            int(event.fields["cell"]): event.fields["role"] for event in self._store.events("role")
        }
        for cell, role in sorted(last.items()):
            if role != CellRole.ROLLOUT:
                await self.role(cell, CellRole.ROLLOUT)

    async def switch(self, report: SwitchReport) -> None:
        """A finished move to training."""
        self.figures.role_switches += 1
        await self._event(
            "switch",
            cell=float(report.cell),
            seconds=report.seconds,
            moved_with_kv=float(report.moved_with_kv),
            recomputed=float(report.recomputed),
        )

    async def waterlevel(self, state: State) -> None:
        """Dispatched minus ended executions, and the room for them."""
        level = (state.waterlevel, state.rollout_capacity)
        if level != self._last_level:
            self._last_level = level
            self.figures.waterlevel, self.figures.capacity = level
            await self._event("waterlevel", waterlevel=float(level[0]), capacity=float(level[1]))

    async def published(self, version: int) -> None:
        """Every engine serves this version now."""
        await self._event("published", version=float(version))

    def execution(self, record: ExecutionRecord) -> None:
        """An ended try of an execution."""
        self.figures.phase_done += record.final
        self.figures.excluded += record.final and record.verdict.kind is not VerdictKind.SCORED
        self._changed(self.figures)

    async def evaluation(self, name: str, step: int, passed: list[bool]) -> None:
        """A held-out evaluation's result."""
        rate = fmean(passed) if passed else 0.0
        await self._event(
            "evaluation", name=name, step=float(step), rate=rate, n=float(len(passed))
        )

    async def step(self, result: StepResult, groups: list[Group], version: int) -> None:
        """An optimiser step and the groups that it consumed, durable together."""
        row = _step_row(result, groups, version, self._clock.now())
        consumed = [_consumed(group.row, row.step) for group in groups]
        await self._store.put_step(row, consumed)
        self.figures.steps.append(row)
        self._changed(self.figures)

    async def _event(self, kind: str, **fields: str | float) -> None:
        await self._store.put_event(EventRow(at=self._clock.now(), kind=kind, fields=fields))
        self._changed(self.figures)


def _consumed(row: GroupRow, step: int) -> GroupRow:
    return msgspec.structs.replace(row, state=GroupState.CONSUMED, step=step)


def _step_row(result: StepResult, groups: list[Group], version: int, at: float) -> StepRow:
    verdicts = [record.verdict for group in groups for record in group.records.values()]
    scored = [verdict for verdict in verdicts if verdict.kind is VerdictKind.SCORED]
    return StepRow(
        step=result.step + 1,
        version=version,
        at=at,
        executions=result.executions,
        groups=[group.row.group_id for group in groups],
        reward_mean=fmean([verdict.reward or 0.0 for verdict in scored] or [0.0]),
        pass_rate=fmean([float(bool(verdict.passed)) for verdict in scored] or [0.0]),
        metrics=_metrics(result, groups, version),
    )


def _metrics(result: StepResult, groups: list[Group], version: int) -> dict[str, float]:
    lags = [version - group.row.version_dispatched for group in groups]
    total = sum(result.micros, MicroStats())
    metrics = {
        "seconds": result.seconds,
        "cells": float(len(result.cells)),
        "groups_without_spread": float(sum(not g.samples.spread for g in groups if g.samples)),
        "staleness_versions_max": float(max(lags, default=0)),
        "staleness_versions_mean": fmean(lags or [0]),
        "packed_tokens": float(total.packed_tokens),
        "expanded_tokens": float(total.expanded_tokens),
        "trained_tokens": float(total.trained_tokens),
        "loss": total.loss_sum / max(1, result.executions),
        "clip_share": total.clip_share,
        "mismatch": total.mismatch,
        "entropy": total.entropy,
    }
    if result.stats is not None:
        metrics["gradient_norm"] = result.stats.gradient_norm
        metrics["learning_rate"] = result.stats.learning_rate
    return metrics
