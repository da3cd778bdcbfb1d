"""Weighs the executions of a recorded group against each other, as they end.

Invariant: everybody who joined a group has a ledger once `weigh` returns, and ledgers are only ever
replaced by those of more members. The whole store is read once, before calls are served.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from opengyre.app.groups import samples_from_store
from opengyre.config.run import RunConfig
from opengyre.core.records import ExecutionRecord
from opengyre.store.rows import GroupRow, GroupState
from opengyre.store.run import RunStore


@dataclass
class Group:
    """One group, as far as it has come."""

    row: GroupRow
    members: list[ExecutionRecord] = field(default_factory=list)
    weighed: int = 0
    """Of members, those that have a ledger which knows of them."""
    weighing: asyncio.Lock = field(default_factory=asyncio.Lock)


class Groups:
    """All groups of a recording."""

    def __init__(self, store: RunStore, config: RunConfig) -> None:
        self._store, self._config = store, config
        self._groups = {row.group_id: Group(row) for row in store.groups()}
        self._next = max((group.row.index + 1 for group in self._groups.values()), default=0)
        for record in store.executions():
            self.row_for(record)
            self.join(record)
        self._believe(store.ledgers())

    def row_for(self, record: ExecutionRecord) -> GroupRow:
        """The row of its group, which is new if need be."""
        known = self._groups.get(record.group_id)
        if known is not None:
            return known.row
        row = GroupRow(
            group_id=record.group_id,
            index=self._next,
            task_id=record.task_id,
            version_dispatched=record.version_dispatched,
            state=GroupState.READY,
        )
        self._next += 1
        self._groups[record.group_id] = Group(row)
        return row

    def join(self, record: ExecutionRecord) -> None:
        """It is durable: its group is one larger."""
        self._groups[record.group_id].members.append(record)

    async def complete(self) -> None:
        """Weigh what a killed proxy had booked and not weighed."""
        for group_id, group in self._groups.items():
            if group.weighed < len(group.members):
                await self.weigh(group_id)

    async def weigh(self, group_id: str) -> None:
        """Return once the ledgers are those of everybody who has joined by now, or of more."""
        group = self._groups[group_id]
        wanted = len(group.members)
        async with group.weighing:
            if group.weighed >= wanted:
                return
            members = list(group.members)
            samples = await asyncio.to_thread(  # trees of a million tokens take seconds
                samples_from_store, self._config, self._store, group_id, members
            )
            await self._store.put_group(group.row, samples.ledger_by_execution)
            group.weighed = len(members)

    def _believe(self, booked: Iterable[str]) -> None:
        """Ledgers of a group are written together: if all members have one, they are right."""
        names = set(booked)
        for group in self._groups.values():
            if all(record.execution_id in names for record in group.members):
                group.weighed = len(group.members)
