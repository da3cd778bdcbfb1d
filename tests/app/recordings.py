"""Small recorded runs for the tests of whatever reads runs back."""

import asyncio
import random
from pathlib import Path

from opengyre.config.load import parse_config
from opengyre.config.run import RunConfig
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import Call, ExecutionRecord, Verdict
from opengyre.store.rows import GroupRow, GroupState
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree
from opengyre.tree.weigh import GroupSamples, samples_of_group

Member = tuple[str, ExecutionTree, Verdict]


def a_config(model: Path | str = "quickstart", *, j_max: int = 5, budget: int = 64) -> RunConfig:
    """Of a run that was never made."""
    raw = {
        "policy": {"model": str(model), "context_tokens": 64, "max_new_tokens": 16},
        "tasks": {"train": "t", "heldout": "h"},
        "cells": {"token_budget": budget},
        "learner": {"max_trajectories": j_max},
    }
    return parse_config(raw, "a configuration")


def a_record(execution_id: str, group_id: str, verdict: Verdict, split: str) -> ExecutionRecord:
    """Of an execution that took no time."""
    return ExecutionRecord(
        execution_id=execution_id,
        group_id=group_id,
        task_id=f"task-of-{group_id}",
        harness="claude-code",
        split=split,
        version_dispatched=0,
        attempt=1,
        dispatched_at=0.0,
        started_at=0.0,
        ended_at=1.0,
        verdict=verdict,
        member=execution_id,
    )


def write_run(
    folder: Path,
    groups: dict[str, list[Member]],
    config: RunConfig,
    *,
    heldout: list[Member] | None = None,
    unfinished: tuple[str, ...] = (),
) -> dict[str, GroupSamples]:
    """A run as training leaves it; returns what each whole group gave to the learner."""
    return asyncio.run(_write(folder, groups, config, heldout or [], unfinished))


async def _write(
    folder: Path,
    groups: dict[str, list[Member]],
    config: RunConfig,
    heldout: list[Member],
    unfinished: tuple[str, ...],
) -> dict[str, GroupSamples]:
    given = {}
    with RunStore(folder / "run.sqlite") as store:
        await store.put_meta("config", config.model_dump_json())
        for index, (group_id, members) in enumerate(groups.items()):
            await _record(store, group_id, members, "train")
            if group_id in unfinished:
                await store.put_group(_row(group_id, index, GroupState.OUTSTANDING))
                continue
            samples = given[group_id] = samples_of_group(
                group_id,
                sorted(members),
                j_max=config.learner.j_max,
                normalise=config.learner.normalise_advantage,
                rng=random.Random(f"{config.run.seed}/{group_id}"),
                longest=config.cells.token_budget,
            )
            row = _row(group_id, index, GroupState.CONSUMED)
            await store.put_group(row, samples.ledger_by_execution)
        await _record(store, "heldout-group", heldout, "heldout")
    return given


async def _record(store: RunStore, group_id: str, members: list[Member], split: str) -> None:
    for execution_id, tree, verdict in members:
        await write_calls(store, tree.calls)
        await store.put_execution(a_record(execution_id, group_id, verdict, split))


async def write_calls(store: RunStore, calls: list[Call]) -> None:
    """Just the calls, as of an execution that has not ended."""
    for call in calls:
        await store.record(call)


def _row(group_id: str, index: int, state: GroupState) -> GroupRow:
    return GroupRow(
        group_id=group_id,
        index=index,
        task_id=f"task-of-{group_id}",
        version_dispatched=0,
        state=state,
        step=index + 1 if state is GroupState.CONSUMED else None,
    )


def scored(reward: float) -> Verdict:
    """Passed where it is 1."""
    return Verdict(
        kind=VerdictKind.SCORED, ending=Ending.FINISHED, reward=reward, passed=reward == 1
    )
