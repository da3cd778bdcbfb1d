"""Groups of executions: ordered together, ready when every member has its verdict.

Invariant: a member that has a record is never run again, also not after a restart.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from opengyre.app.episode import Order
from opengyre.config.run import RunConfig
from opengyre.core.protocols import Clock
from opengyre.core.records import ExecutionRecord
from opengyre.store.rows import GroupRow, GroupState
from opengyre.store.run import RunStore
from opengyre.tasks.base import Task
from opengyre.tasks.sampler import TaskCycle
from opengyre.tree.record import ExecutionTree
from opengyre.tree.weigh import GroupSamples, samples_of_group


@dataclass
class Group:
    """One task, N executions."""

    row: GroupRow
    task: Task
    records: dict[str, ExecutionRecord] = field(default_factory=dict)
    """Every try, by execution id."""
    samples: GroupSamples | None = None

    def done(self) -> set[str]:
        """Members that have their verdict."""
        return {record.member for record in self.records.values() if record.final}


class GroupBook:
    """Every group that is not consumed yet."""

    def __init__(self, config: RunConfig, cycle: TaskCycle, store: RunStore, clock: Clock) -> None:
        self._config = config
        self._cycle = cycle
        self._store = store
        self._clock = clock
        self._next = 0
        self.groups: dict[str, Group] = {}

    async def resume(self) -> list[Group]:
        """Take up the groups that an earlier process left; those that are whole get their samples."""
        records: dict[str, list[ExecutionRecord]] = {}
        for record in self._store.executions():
            records.setdefault(record.group_id, []).append(record)
        for row in self._store.groups():
            self._next = max(self._next, row.index + 1)
            if row.state is GroupState.CONSUMED:
                continue
            group = Group(row, self._cycle.next_task(row.index))
            group.records = {r.execution_id: r for r in records.get(row.group_id, [])}
            self.groups[row.group_id] = group
            await self._close_if_whole(group)
        return list(self.groups.values())

    async def open(self, version: int) -> Group:
        """A new group on the next task."""
        task = self._cycle.next_task(self._next)
        row = GroupRow(
            group_id=f"g{self._next:05d}",
            index=self._next,
            task_id=task.task_id,
            version_dispatched=version,
            state=GroupState.OUTSTANDING,
            dispatched_at=self._clock.now(),
        )
        self._next += 1
        await self._store.put_group(row)
        group = self.groups[row.group_id] = Group(row, task)
        return group

    def orders(self, group: Group) -> list[Order]:
        """The members that have no record yet."""
        members = [f"{group.row.group_id}-{i:02d}" for i in range(self._config.schedule.group_size)]
        done = group.done()
        return [
            Order(
                member=member,
                group_id=group.row.group_id,
                task=group.task,
                split="train",
                version=group.row.version_dispatched,
                seed=seed_of(self._config.run.seed, member),
                temperature=self._config.policy.temperature,
                dispatched_at=self._clock.now(),
            )
            for member in members
            if member not in done
        ]

    async def add(self, record: ExecutionRecord, ready: Callable[[Group], Awaitable[None]]) -> None:
        """Take a member's record; calls `ready` when it was the last one."""
        group = self.groups[record.group_id]
        group.records[record.execution_id] = record
        await self._close_if_whole(group)
        if group.samples is not None:
            await ready(group)

    async def _close_if_whole(self, group: Group) -> None:
        if len(group.done()) < self._config.schedule.group_size:
            return
        records = list(group.records.values())
        group.samples = await asyncio.to_thread(  # trees of a million tokens take seconds
            samples_from_store, self._config, self._store, group.row.group_id, records
        )
        group.row = msgspec.structs.replace(group.row, state=GroupState.READY)
        await self._store.put_group(group.row, group.samples.ledger_by_execution)

    def consume(self, group_ids: list[str]) -> list[Group]:
        """Hand out groups that a step used up."""
        return [self.groups.pop(group_id) for group_id in group_ids]


def samples_from_store(
    config: RunConfig, store: RunStore, group_id: str, records: Sequence[ExecutionRecord]
) -> GroupSamples:
    """What a whole group gives to the learner: the same whenever it is asked for."""
    members = [
        (record.execution_id, _tree(store, record.execution_id), record.verdict)
        for record in sorted(records, key=lambda record: record.execution_id)
    ]
    return samples_of_group(
        group_id,
        members,
        j_max=config.learner.j_max,
        normalise=config.learner.normalise_advantage,
        rng=group_draws(config, group_id),
        longest=config.cells.token_budget,
    )


def group_draws(config: RunConfig, group_id: str) -> random.Random:
    """What the selection of a group's trajectories is drawn with."""
    return random.Random(f"{config.run.seed}/{group_id}")


def _tree(store: RunStore, execution_id: str) -> ExecutionTree:
    tree = ExecutionTree()
    for call in store.calls(execution_id):
        tree.add(call)
    return tree


def seed_of(*parts: object) -> int:
    """A 63-bit seed from ids, the same on every machine."""
    return random.Random("/".join(map(str, parts))).getrandbits(63)
