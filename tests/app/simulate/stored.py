"""A played run as the store of a live one, whole or stopped and resumed, so that what is read from a store can be
held against what was played."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opengyre.app.simulate.measured import (
    Measured,
    MeasuredCall,
    MeasuredExecution,
    MeasuredGroup,
    MeasuredStep,
)
from opengyre.config.load import parse_config
from opengyre.core.reasons import CellRole, Ending, FinishReason, Role, VerdictKind
from opengyre.core.records import Call, ExecutionRecord, Verdict, VersionSpan
from opengyre.store.rows import EventRow, GroupRow, GroupState, StepRow
from opengyre.store.run import RunStore

START_S = 5.0
"""From the start of a process to its first dispatch."""
LAST_DIGIT = 1e-9
"""Of seconds: that two sums of the same times differ by."""
Shift = Callable[[float], float]


def as_recorded(at: float) -> float:
    """The store's clock, where the run has no stop."""
    return START_S + at


@dataclass(frozen=True)
class Part:
    """What one process recorded of a run."""

    run: Measured
    clock: Shift
    until: float = float("inf")
    """Of the run's time: nothing later was recorded."""
    since: float = -1.0
    """And nothing up to then: an earlier process did."""
    ended: frozenset[str] = frozenset()
    """Groups whose executions got verdicts; of the others only calls are recorded, under other names."""
    cut: bool = False
    """Calls in flight at its end were recorded as given up."""
    starts: float | None = None
    """On the store's clock; None: at second 0 of the run's time."""
    lives_on: bool = False
    """What was under way at its end goes on, as if the machine had been held."""

    def has(self, at: float) -> bool:
        return self.since < at <= self.until


def write_config(run: Measured, planned_steps: int) -> str:
    """What such a run is configured with."""
    plan = run.plan
    raw = {
        "run": {"steps": planned_steps},
        "policy": {"model": "quickstart", "context_tokens": 512, "max_new_tokens": 64},
        "tasks": {"train": "t", "heldout": "h"},
        "cells": {
            "count": len(plan.cells),
            "capacity": plan.cells[0],
            "token_budget": run.token_budget,
            "training_cells": plan.training_cells or 1,
        },
        "schedule": {
            "policy": run.policy,
            "group_size": plan.group_size,
            "groups_per_step": plan.groups_per_step,
            "steps_per_burst": plan.steps_per_burst,
            "staleness_steps": plan.staleness_steps,
        },
    }
    return parse_config(raw, "a run").model_dump_json()


def store_run(folder: Path, run: Measured, parts: Sequence[Part], *, told: bool = True) -> None:
    """Write what each process recorded, one after the other. told: as this version does, else as those that
    did not know of processes, cells and dispatches."""
    asyncio.run(_store(folder, run, parts, told=told))


def store_held(folder: Path, run: Measured, at: float, seconds: float) -> None:
    """As if the machine had been held: nothing is done twice."""

    def clock(time: float) -> float:
        return START_S + time + (seconds if time > at else 0.0)

    ended = frozenset(group.group_id for group in run.groups)
    parts = [
        Part(run, clock, until=at, ended=ended, lives_on=True),
        Part(run, clock, since=at, ended=ended, lives_on=True, starts=START_S + at + seconds),
    ]
    store_run(folder, run, parts)


def kept_steps(run: Measured, at: float) -> int:
    """Steps that a run stopped at some time has in a checkpoint: those of bursts that were published."""
    opened = {group.version for group in run.groups if group.dispatched <= at}
    return sum(step.version < max(opened) for step in run.steps)


def store_stopped(
    folder: Path,
    run: Measured,
    again: Measured,
    at: float,
    *,
    evaluation_s: float,
    cut: bool,
    told: bool = True,
) -> None:
    """The run, stopped at some time, and what was played of the steps that it had to take then.

    Groups that were under way are taken over by name, with all their executions: that some had ended by
    then is not recorded.
    """
    kept = kept_steps(run, at)
    used = frozenset(name for step in run.steps[:kept] for name in step.groups)
    under_way = [g for g in run.groups if g.dispatched <= at and g.group_id not in used]
    at_once = sum(group.dispatched == 0.0 for group in again.groups)
    assert len(under_way) == at_once, "a run that goes on has as many groups outstanding"
    lost = [one for group in under_way for one in group.executions]
    first = replace(run, steps=run.steps[:kept], levels=_without_ends(run, lost, evaluation_s))
    second = _renamed(again, [group.group_id for group in under_way], kept, run)
    parts = [
        Part(first, lambda time: time + START_S, until=at, ended=used, cut=cut),
        Part(
            second,
            lambda time: time + 2 * START_S + at,
            ended=frozenset(group.group_id for group in second.groups),
        ),
    ]
    store_run(folder, run, parts, told=told)


def _without_ends(
    run: Measured, lost: Sequence[MeasuredExecution], evaluation_s: float
) -> tuple[tuple[float, int], ...]:
    """The waterlevel if these had not ended."""
    ends = [one.ended - evaluation_s - LAST_DIGIT for one in lost]
    return tuple((at, level + sum(end <= at for end in ends)) for at, level in run.levels)


def _renamed(again: Measured, taken_over: list[str], kept: int, run: Measured) -> Measured:
    """Its first groups are those that were taken over, the others come after them."""
    versions = kept // run.plan.steps_per_burst
    first_new = kept * run.plan.groups_per_step
    places = enumerate(group.group_id for group in again.groups)
    names = {
        name: taken_over[place] if place < len(taken_over) else f"g{first_new + place}"
        for place, name in places
    }
    groups = tuple(
        replace(g, group_id=names[g.group_id], version=g.version + versions) for g in again.groups
    )
    steps = tuple(
        replace(
            step,
            version=step.version + versions,
            groups=tuple(names[name] for name in step.groups),
        )
        for step in again.steps
    )
    return replace(again, groups=groups, steps=steps)


async def _store(folder: Path, run: Measured, parts: Sequence[Part], *, told: bool) -> None:
    with RunStore(folder / "run.sqlite") as store:
        await store.put_meta("config", write_config(run, run.planned_steps))
        for part in parts:
            if told:
                await store.begin_life()
            await _begin(store, part)
            await _write_part(store, part, told=told)


async def _begin(store: RunStore, part: Part) -> None:
    """A process starts: its cells all serve, then training begins."""
    at = part.clock(0.0) if part.starts is None else part.starts
    roles = {int(e.fields["cell"]): e.fields["role"] for e in store.events("role")}
    for cell, role in sorted(roles.items()):
        if role != CellRole.ROLLOUT and not part.lives_on:
            await _event(store, at - 0.02, "role", cell=float(cell), role="rollout")
    await _event(store, at - 0.01, "phase", name="training")
    if part.since > 0:
        level = max(level for level in part.run.levels if level[0] <= part.since)[1]
        await _event(store, at, "waterlevel", waterlevel=float(level), capacity=1.0)


async def _write_part(store: RunStore, part: Part, *, told: bool) -> None:
    run = part.run
    writes = []
    starts = [(span.start, span) for span in run.spans if span.start > 0 or span.role != "rollout"]
    for at, span in sorted(starts, key=lambda one: one[0]):
        if part.has(at):
            role = span.role.value
            writes.append(_event(store, part.clock(at), "role", cell=float(span.cell), role=role))
    for at, level in run.levels:
        if part.has(at):
            fields = {"waterlevel": float(level), "capacity": 1.0}
            writes.append(_event(store, part.clock(at), "waterlevel", **fields))
    known = {row.group_id for row in store.groups()}
    for group in run.groups:
        if group.dispatched <= part.until:
            if group.group_id not in known:
                writes.append(store.put_group(_row(part, group, told=told)))
            writes += _members(store, part, group, told=told)
    await asyncio.gather(*writes)
    groups = {group.group_id: group for group in run.groups}
    for step in run.steps:
        if part.has(step.at):
            await _write_step(store, part, step, [groups[name] for name in step.groups], told=told)


def _members(
    store: RunStore, part: Part, group: MeasuredGroup, *, told: bool
) -> list[Coroutine[None, None, None]]:
    writes = []
    for place, one in enumerate(group.executions):
        member = f"{group.group_id}-{place:02d}"
        ends = group.group_id in part.ended and part.has(one.ended)
        last = part.until == float("inf")
        name = member if ends or last or part.lives_on else f"{member}-lost"
        calls = [call for call in one.calls if part.has(call.ended)]
        calls += [
            replace(call, ended=part.until, answer_tokens=call.answer_tokens // 2, cut=True)
            for call in one.calls
            if part.cut and call.began < part.until < call.ended
        ]
        writes += [
            store.record(_call(part, name, index, call, told=told))
            for index, call in enumerate(calls, start=100 if part.since > 0 else 0)
        ]
        if ends:
            writes.append(store.put_execution(_execution(part, group, member, place, one)))
    return writes


def _row(part: Part, group: MeasuredGroup, *, told: bool) -> GroupRow:
    return GroupRow(
        group_id=group.group_id,
        index=int(group.group_id[1:]),
        task_id="t",
        version_dispatched=group.version,
        state=GroupState.OUTSTANDING,
        dispatched_at=part.clock(group.dispatched) if told else None,
    )


def _execution(
    part: Part, group: MeasuredGroup, member: str, place: int, one: MeasuredExecution
) -> ExecutionRecord:
    verdict = Verdict(
        kind=VerdictKind.SCORED, ending=Ending.FINISHED, reward=place / 4, passed=False
    )
    return ExecutionRecord(
        execution_id=member,
        group_id=group.group_id,
        task_id="t",
        harness="command",
        split="train",
        version_dispatched=group.version,
        attempt=1,
        dispatched_at=part.clock(max(group.dispatched, part.since)),
        started_at=part.clock(one.began),
        ended_at=part.clock(one.ended),
        verdict=verdict,
        member=member,
    )


def _call(part: Part, execution: str, index: int, call: MeasuredCall, *, told: bool) -> Call:
    return Call(
        call_id=f"{execution}-{index}",
        execution_id=execution,
        index=index,
        dialect="openai-chat",
        parent_id=None,
        reused=call.prompt_tokens - call.new_tokens,
        suffix_ids=[1] * call.new_tokens,
        output_ids=[2] * call.answer_tokens,
        output_logprobs=[-1.0] * call.answer_tokens,
        versions=[VersionSpan(0, 0, call.answer_tokens)],
        finish=FinishReason.ABORT if call.cut else FinishReason.STOP,
        role=Role.MAIN,
        role_why="",
        fork=None,
        started_at=part.clock(call.began),
        ended_at=part.clock(call.ended),
        moves_with_kv=int(call.moved),
        cells=list(call.cells) if told else [],
    )


async def _write_step(
    store: RunStore, part: Part, step: MeasuredStep, groups: list[MeasuredGroup], *, told: bool
) -> None:
    number = len(store.steps()) + 1
    stored = {row.group_id: row for row in store.groups()}
    rows = [
        GroupRow(
            group_id=group.group_id,
            index=int(group.group_id[1:]),
            task_id="t",
            version_dispatched=stored[group.group_id].version_dispatched,
            state=GroupState.CONSUMED,
            step=number,
            dispatched_at=stored[group.group_id].dispatched_at,
        )
        for group in groups
    ]
    row = StepRow(
        step=number,
        version=step.version,
        at=part.clock(step.at),
        executions=1,
        groups=list(step.groups),
        reward_mean=0.0,
        pass_rate=0.0,
        metrics={"packed_tokens": step.packed_tokens, "staleness_versions_mean": 0.0},
    )
    await store.put_step(row, rows)


async def _event(store: RunStore, at: float, kind: str, **fields: str | float) -> None:
    await store.put_event(EventRow(at=at, kind=kind, fields=fields))
