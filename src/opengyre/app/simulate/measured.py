"""A recorded run as measurements: what its store says about executions, calls, cells and steps.

Invariant: times are seconds of run time (opengyre.app.simulate.stops): from the first dispatch on, without the
stops of a run that was resumed. Nothing here is fitted or guessed.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opengyre.app.recorded import Recorded, config_of, open_run
from opengyre.app.report.lanes import Span, lanes
from opengyre.app.simulate.stops import Stop, Timeline, find_gaps
from opengyre.config.run import PolicyName, RunConfig
from opengyre.core.errors import UserError
from opengyre.core.reasons import FinishReason
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
    cells: tuple[int, ...] = ()
    """That it was given to, in order; empty where the store does not say."""
    cut: bool = False
    """It was given up, by its program or by a stop, or lasted through one: its time says nothing."""


@dataclass(frozen=True)
class MeasuredExecution:
    """A member of a group, all its tries together; after a stop, those since it was begun anew."""

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
    stops: tuple[Stop, ...] = ()
    """That were taken out of all times."""
    begun_anew: int = 0
    """Executions that had made calls when a stop ended them: these are among `other_calls`."""

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

    def undisturbed(self) -> list[int]:
        """Places in `steps` of those whose burst had no stop; all, if every burst had one.

        After a stop executions that were under way begin anew, and steps of the burst are taken again.
        """
        ends = {step.version: step.at for step in self.steps}
        begins = dict(zip(ends, [-math.inf, *ends.values()], strict=False))
        hit = {
            version
            for version, end in ends.items()
            if any(begins[version] <= stop.at < end for stop in self.stops)
        }
        quiet = [place for place, step in enumerate(self.steps) if step.version not in hit]
        return quiet or list(range(len(self.steps)))

    def steps_s(self, ends: Sequence[float]) -> float:
        """Seconds that its undisturbed steps took, by the ends of all steps, here or in a replay."""
        before = [0.0, *ends]
        return sum(ends[place] - before[place] for place in self.undisturbed())

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
        self._records = {r.execution_id: r for r in store.executions() if r.split == "train"}
        if not self._records:
            raise UserError(
                f"executions in {run}", "none that ended", "pass a run that has trained"
            )
        self._rows = store.groups()
        self._opened: dict[int, float] = {}
        """When groups were first dispatched under a version, as far as it is recorded."""
        self._tries: dict[str, dict[str, list[ExecutionRecord]]] = {}
        for record in self._records.values():
            members = self._tries.setdefault(record.group_id, {})
            members.setdefault(record.member or record.execution_id, []).append(record)
            self._open(record.version_dispatched, record.dispatched_at)
        for row in self._rows:
            self._open(row.version_dispatched, row.dispatched_at)
        dispatches = [record.dispatched_at for record in self._records.values()]
        dispatches += [row.dispatched_at for row in self._rows if row.dispatched_at is not None]
        self._time = Timeline(min(self._opened.values()), find_gaps(store, dispatches))
        self._recorded = Recorded(store, config)
        self._played: set[str] = set()
        """Executions whose calls belong to a whole group."""
        self._begun_anew = 0

    def _open(self, version: int, at: float | None) -> None:
        if at is not None:
            self._opened[version] = min(at, self._opened.get(version, at))

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
        other_calls = list(self._other_calls())
        return Measured(
            name=self._run.name,
            plan=plan,
            policy=schedule.policy,
            limit_s=self._config.harness.timeout_s,
            token_budget=cells.token_budget,
            groups=tuple(groups),
            other_calls=tuple(other_calls),
            steps=tuple(steps),
            planned_steps=max(self._config.run.steps, len(steps)),
            spans=tuple(self._spans(steps[-1].at, cells.count)),
            levels=tuple(
                (at, int(event.fields["waterlevel"]))
                for event in store.events("waterlevel")
                if (at := self._time.run(event.at)) >= 0  # or of a process of which nothing is left
            ),
            stops=self._time.stops,
            begun_anew=self._begun_anew,
        )

    def _groups(self) -> list[MeasuredGroup]:
        return [
            MeasuredGroup(
                row.group_id,
                row.version_dispatched,
                self._time.run(self._dispatched(row)),
                tuple(self._execution(tries) for _, tries in sorted(members.items())),
            )
            for row in self._rows
            if self._whole(row)
            for members in (self._tries[row.group_id],)
        ]

    def _dispatched(self, row: GroupRow) -> float:
        """Members that a stop ended are ordered again, and records tell of that order only. In stores
        of older versions that has to be taken from the groups dispatched with them."""
        if row.dispatched_at is not None:
            return row.dispatched_at
        if self._time.stops:
            return self._opened[row.version_dispatched]
        return min(r.dispatched_at for tries in self._tries[row.group_id].values() for r in tries)

    def _whole(self, row: GroupRow) -> bool:
        members = self._tries.get(row.group_id, {}).values()
        ended = sum(any(one.final for one in tries) for tries in members)
        return ended >= self._config.schedule.group_size or (
            ended > 0 and row.state is not GroupState.OUTSTANDING
        )

    def _execution(self, tries: Sequence[ExecutionRecord]) -> MeasuredExecution:
        """Tries before a stop that ended a later one are not played: between them and the next one
        there is work that nobody recorded."""
        life = self._time.life(tries[-1].ended_at)
        mine = [record for record in tries if self._time.life(record.ended_at) == life]
        self._played |= {record.execution_id for record in mine}
        calls = [call for record in mine for call in self._store.calls(record.execution_id)]
        last = self._recorded.execution(mine[-1].execution_id)
        return MeasuredExecution(
            group_id=mine[0].group_id,
            began=self._time.run(min(record.started_at for record in mine)),
            ended=self._time.run(max(record.ended_at for record in mine)),
            calls=tuple(self._call(call) for call in sorted(calls, key=lambda c: c.started_at)),
            trained=last.fate.why_untrained is None,
        )

    def _other_calls(self) -> Iterator[MeasuredCall]:
        """Of training's executions, as far as one can tell: all that have not ended may be, but for
        those of an evaluation before the first dispatch that was stopped."""
        heldout = {r.execution_id for r in self._store.executions()} - self._records.keys()
        for execution_id in self._store.recorded():
            if execution_id in self._played or execution_id in heldout:
                continue
            recorded = self._store.calls(execution_id)
            calls = [call for call in map(self._call, recorded) if call.began >= 0]
            if calls and execution_id not in self._records:
                ended = max(call.ended_at for call in recorded)
                self._begun_anew += self._time.life(ended) < len(self._time.stops)
            yield from calls

    def _call(self, call: Call) -> MeasuredCall:
        across = self._time.life(call.started_at) != self._time.life(call.ended_at)
        return MeasuredCall(
            began=self._time.run(call.started_at),
            ended=self._time.run(call.ended_at),
            prompt_tokens=call.reused + len(call.suffix_ids),
            new_tokens=len(call.suffix_ids),
            answer_tokens=len(call.output_ids),
            moved=bool(call.moves_with_kv or call.moves_recomputed) or len(call.cells) > 1,
            cells=tuple(call.cells),
            cut=across or call.finish is FinishReason.ABORT,
        )

    def _steps(self) -> list[MeasuredStep]:
        return [
            MeasuredStep(
                at=self._time.run(row.at),
                version=row.version,
                groups=tuple(row.groups),
                packed_tokens=row.metrics["packed_tokens"],
                staleness_versions=row.metrics["staleness_versions_mean"],
            )
            for row in self._store.steps()
        ]

    def _spans(self, end: float, cells: int) -> list[Span]:
        moved = [
            EventRow(at=self._time.run(event.at), kind=event.kind, fields=event.fields)
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
