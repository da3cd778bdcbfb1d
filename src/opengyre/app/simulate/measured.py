"""A recorded run as measurements: what its store says about executions, calls, cells and steps.

Invariant: times are seconds since the first dispatch, and nothing here is fitted or guessed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opengyre.app.recorded import Recorded, config_of, open_run
from opengyre.app.report.lanes import Span, lanes
from opengyre.config.run import PolicyName, RunConfig
from opengyre.core.errors import UserError
from opengyre.core.records import Call, ExecutionRecord
from opengyre.scheduler.base import SchedulePlan
from opengyre.store.rows import EventRow, GroupRow, GroupState
from opengyre.store.run import RunStore

LEAST_STEPS = 2
"""With one step there is no time from step to step."""


@dataclass(frozen=True)
class MeasuredCall:
    """One model call."""

    began: float
    ended: float
    prompt_tokens: int
    new_tokens: int
    """Of the prompt, those that its parent call did not have."""
    answer_tokens: int
    moved: bool
    """It changed its cell while it was being answered."""


@dataclass(frozen=True)
class MeasuredExecution:
    """A member of a group, all its tries together."""

    group_id: str
    began: float
    ended: float
    """With its verdict."""
    calls: tuple[MeasuredCall, ...]
    """By their beginning."""
    trained: bool
    """It gave a gradient."""

    @property
    def context_tokens(self) -> int:
        """Of its longest call, answer included."""
        return max((call.prompt_tokens + call.answer_tokens for call in self.calls), default=0)


@dataclass(frozen=True)
class MeasuredGroup:
    """In order of dispatch."""

    group_id: str
    version: int
    """At its dispatch."""
    dispatched: float
    executions: tuple[MeasuredExecution, ...]

    @property
    def ready(self) -> float:
        """When its last member had its verdict."""
        return max(execution.ended for execution in self.executions)


@dataclass(frozen=True)
class MeasuredStep:
    """An optimiser step."""

    at: float
    """Its end."""
    version: int
    """It started from."""
    groups: tuple[str, ...]
    packed_tokens: float
    staleness_versions: float
    """Mean over its groups."""


@dataclass(frozen=True)
class Measured:
    """One run."""

    name: str
    plan: SchedulePlan
    policy: PolicyName
    limit_s: float
    """The configured harness timeout."""
    token_budget: int
    groups: tuple[MeasuredGroup, ...]
    """Those whose members all ended; of the others only the short ones would be known."""
    other_calls: tuple[MeasuredCall, ...]
    """Of groups that were under way when the record ends."""
    steps: tuple[MeasuredStep, ...]
    planned_steps: int
    """Of the configuration: more than `steps` if the run goes on, or was stopped."""
    spans: tuple[Span, ...]
    """Roles of every cell, from 0 to the last step."""
    levels: tuple[tuple[float, int], ...]
    """(time, waterlevel) at each change."""
    starts: int
    """How often training began: above 1, the run was resumed."""

    @property
    def executions(self) -> list[MeasuredExecution]:
        """Of all groups."""
        return [execution for group in self.groups for execution in group.executions]

    @property
    def calls(self) -> list[MeasuredCall]:
        """Of all executions of whole groups."""
        return [call for execution in self.executions for call in execution.calls]

    @property
    def all_calls(self) -> list[MeasuredCall]:
        """Also those of groups that are not whole: they used the cells too."""
        return [*self.calls, *self.other_calls]

    @property
    def seconds(self) -> float:
        """To the end of the last step."""
        return self.steps[-1].at

    def staleness_steps(self) -> list[int]:
        """Of each consumed group: optimiser steps from its dispatch to its own."""
        dispatched = {group.group_id: group.dispatched for group in self.groups}
        ends = [step.at for step in self.steps]
        return [
            number - bisect_right(ends, dispatched[name])
            for number, step in enumerate(self.steps)
            for name in step.groups
            if name in dispatched
        ]


def measured(run: Path) -> Measured:
    """Read a run folder. Raises UserError when it has no training to learn from."""
    with open_run(run) as store:
        config = config_of(run, store)
        if config is None:
            raise UserError(
                f"a run with training at {run}",
                "a recording without one",
                "pass the folder of a run of `opengyre train`, `quickstart` or `bench policies --keep`",
            )
        if len(store.steps()) < LEAST_STEPS:
            raise UserError(
                f"a run of {LEAST_STEPS} optimiser steps or more at {run}",
                str(len(store.steps())),
                "let it run on, with `opengyre train --resume`",
            )
        return _Reader(run, store, config).read()


class _Reader:
    """Turns one open store into measurements."""

    def __init__(self, run: Path, store: RunStore, config: RunConfig) -> None:
        self._run, self._store, self._config = run, store, config
        records = [record for record in store.executions() if record.split == "train"]
        if not records:
            raise UserError(
                f"executions in {run}", "none that ended", "pass a run that has trained"
            )
        self._zero = min(record.dispatched_at for record in records)
        self._tries: dict[str, dict[str, list[ExecutionRecord]]] = {}
        for record in records:
            members = self._tries.setdefault(record.group_id, {})
            members.setdefault(record.member or record.execution_id, []).append(record)
        self._recorded = Recorded(store, config)

    def read(self) -> Measured:
        store, schedule, cells = self._store, self._config.schedule, self._config.cells
        steps = self._steps()
        plan = SchedulePlan(
            cells=(cells.capacity,) * cells.count,
            group_size=schedule.group_size,
            groups_per_step=schedule.groups_per_step,
            steps_per_burst=schedule.steps_per_burst,
            staleness_steps=schedule.staleness_steps,
            total_steps=len(steps),
            training_cells=cells.training_cells,
        )
        groups = self._groups()
        starts = sum(event.fields["name"] == "training" for event in store.events("phase"))
        return Measured(
            name=self._run.name,
            plan=plan,
            policy=schedule.policy,
            limit_s=self._config.harness.timeout_s,
            token_budget=cells.token_budget,
            groups=tuple(groups),
            other_calls=tuple(self._other_calls({group.group_id for group in groups})),
            steps=tuple(steps),
            planned_steps=max(self._config.run.steps, len(steps)),
            spans=tuple(self._spans(steps[-1].at, cells.count)),
            levels=tuple(
                (event.at - self._zero, int(event.fields["waterlevel"]))
                for event in store.events("waterlevel")
            ),
            starts=starts,
        )

    def _groups(self) -> list[MeasuredGroup]:
        return [
            MeasuredGroup(
                row.group_id,
                row.version_dispatched,
                min(r.dispatched_at for tries in members.values() for r in tries) - self._zero,
                tuple(self._execution(tries) for _, tries in sorted(members.items())),
            )
            for row in self._store.groups()
            if self._whole(row)
            for members in (self._tries[row.group_id],)
        ]

    def _whole(self, row: GroupRow) -> bool:
        ended = len(self._tries.get(row.group_id, ()))
        return ended >= self._config.schedule.group_size or (
            ended > 0 and row.state is not GroupState.OUTSTANDING
        )

    def _other_calls(self, whole: set[str]) -> Iterator[MeasuredCall]:
        """Of training's executions, as far as one can tell: all that have not ended may be, but for
        those of an evaluation before the first dispatch that was stopped."""
        records = {record.execution_id: record for record in self._store.executions()}
        for execution_id in self._store.recorded():
            record = records.get(execution_id)
            if record is None or (record.split == "train" and record.group_id not in whole):
                calls = map(self._call, self._store.calls(execution_id))
                yield from (call for call in calls if call.began >= 0)

    def _execution(self, tries: Sequence[ExecutionRecord]) -> MeasuredExecution:
        calls = [call for record in tries for call in self._store.calls(record.execution_id)]
        last = self._recorded.execution(tries[-1].execution_id)
        return MeasuredExecution(
            group_id=tries[0].group_id,
            began=min(record.started_at for record in tries) - self._zero,
            ended=max(record.ended_at for record in tries) - self._zero,
            calls=tuple(self._call(call) for call in sorted(calls, key=lambda c: c.started_at)),
            trained=last.fate.why_untrained is None,
        )

    def _call(self, call: Call) -> MeasuredCall:
        return MeasuredCall(
            began=call.started_at - self._zero,
            ended=call.ended_at - self._zero,
            prompt_tokens=call.reused + len(call.suffix_ids),
            new_tokens=len(call.suffix_ids),
            answer_tokens=len(call.output_ids),
            moved=bool(call.moves_with_kv or call.moves_recomputed),
        )

    def _steps(self) -> list[MeasuredStep]:
        return [
            MeasuredStep(
                at=row.at - self._zero,
                version=row.version,
                groups=tuple(row.groups),
                packed_tokens=row.metrics["packed_tokens"],
                staleness_versions=row.metrics["staleness_versions_mean"],
            )
            for row in self._store.steps()
        ]

    def _spans(self, end: float, cells: int) -> list[Span]:
        moved = [
            EventRow(at=event.at - self._zero, kind=event.kind, fields=event.fields)
            for event in self._store.events("role")
        ]
        known = {int(event.fields["cell"]) for event in moved}
        fields = {"role": "rollout"}
        still = [
            EventRow(at=0.0, kind="role", fields={"cell": float(cell), **fields})
            for cell in range(cells)
            if cell not in known
        ]
        before_end = [event for event in [*moved, *still] if event.at < end]
        return [
            Span(span.cell, span.role, max(0.0, span.start), span.end)
            for span in lanes(before_end, end)
            if span.end > 0
        ]
