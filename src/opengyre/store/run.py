"""The durable record of one run. Invariant: a write that returned survives the death of the process."""

import asyncio
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from opengyre.core.records import Call, ExecutionRecord
from opengyre.store.journal import StoreJournal, forget_door, insert_call
from opengyre.store.rows import EndRow, EventRow, GroupRow, GroupState, LifeRow, StepRow
from opengyre.store.writer import Statement, Writer
from opengyre.tree.ledger import Ledger


class RunStore:
    """Writes are coroutines that return once durable; reads are plain, from any thread, and see every
    returned write. Raises UserError for a file that is no store of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = Writer(path)
        self.journal = StoreJournal(self._writer)
        """For executions that are to survive their proxy."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is queued, then closes the file. Idempotent."""
        self._writer.close()

    async def begin_life(self) -> None:
        """A process goes on where the record ends: its clock is at last_second() or later."""
        at = self.last_second()
        await self._writer.write(("INSERT INTO lives (began, alive) VALUES (?, ?)", (at, at)))

    async def record(self, call: Call) -> None:
        """One call. Raises StoreError."""
        await self._writer.write(insert_call(call), at=call.ended_at)

    async def put_execution(self, record: ExecutionRecord) -> None:
        """One ended execution."""
        await self._writer.write(_execution(record), at=record.ended_at)

    async def end(
        self, row: EndRow, record: ExecutionRecord | None, group: GroupRow | None
    ) -> None:
        """A door is closed and what became of its execution booked, both or neither."""
        values = (row.execution_id, msgspec.msgpack.encode(row))
        statements = [("INSERT INTO ends VALUES (?, ?)", values), *forget_door(row.execution_id)]
        if record is not None:
            statements.append(_execution(record))
        if group is not None:
            statements.append(_group(group))
        await self._writer.write(*statements, at=None if record is None else record.ended_at)

    async def put_group(self, row: GroupRow, ledgers: dict[str, Ledger] | None = None) -> None:
        """A group's newest state, with its executions' ledgers once they are known."""
        statements = [_group(row)]
        if ledgers:  # a recording's group may hold thousands
            statements += await asyncio.to_thread(_ledgers, ledgers)
        await self._writer.write(*statements)

    async def put_step(self, row: StepRow, consumed: list[GroupRow]) -> None:
        """A step and the groups it consumed, in one transaction."""
        body = msgspec.msgpack.encode(row)
        step: Statement = ("INSERT OR REPLACE INTO steps VALUES (?, ?)", (row.step, body))
        await self._writer.write(step, *(_group(group) for group in consumed), at=row.at)

    async def put_event(self, row: EventRow) -> None:
        """Something for the report."""
        body = msgspec.msgpack.encode(row)
        insert: Statement = ("INSERT INTO events (kind, body) VALUES (?, ?)", (row.kind, body))
        await self._writer.write(insert, at=row.at)

    async def put_meta(self, key: str, value: str) -> None:
        """A fact about the run."""
        await self._writer.write(("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value)))

    async def rewind(self, step: int) -> None:
        """Forget steps after `step` (their weights were never saved); their groups are ready again.

        What was published and evaluated after them is forgotten too. What cells did in their time
        stays: that time has passed.
        """
        rows = [row for row in self.steps() if row.step > step]
        gone = {row.step for row in rows}
        since = min((row.at for row in rows), default=float("inf"))
        statements: list[Statement] = [("DELETE FROM steps WHERE step > ?", (step,))]
        for number, event in self._numbered_events():
            late = event.kind == "published" and event.at >= since
            if late or event.fields.get("step", step) in gone:
                statements.append(("DELETE FROM events WHERE id = ?", (number,)))
        for row in self.groups():
            if row.step in gone:
                statements.append(
                    _group(msgspec.structs.replace(row, state=GroupState.READY, step=None))
                )
        await self._writer.write(*statements)

    def last_second(self) -> float:
        """The latest time that was recorded, where the clock of a resumed run goes on."""
        times = [record.ended_at for record in self.executions()]
        times += [row.at for row in self.steps()]
        times += [event.at for _, event in self._numbered_events()]
        times += [life.alive for life in self.lives()]
        for door in self.journal.open_doors():
            times += [recorded.call.ended_at for recorded in door.calls]
            times += [unfinished.begun.started_at for unfinished in door.unfinished]
        return max(times, default=0.0)

    def calls(self, execution_id: str) -> list[Call]:
        """An execution's calls in order of recording."""
        rows = self._bodies(
            "SELECT body FROM calls WHERE execution_id = ? ORDER BY idx", (execution_id,)
        )
        return [msgspec.msgpack.decode(body, type=Call) for body in rows]

    def recorded(self) -> list[str]:
        """Ids of all executions that made a call, also those that have not ended; sorted."""
        rows = self._writer.read("SELECT DISTINCT execution_id FROM calls ORDER BY execution_id")
        return [str(row[0]) for row in rows]

    def executions(self) -> list[ExecutionRecord]:
        """Every ended execution, by order of ending."""
        rows = self._bodies("SELECT body FROM executions ORDER BY rowid")
        return [msgspec.msgpack.decode(body, type=ExecutionRecord) for body in rows]

    def ends(self) -> list[EndRow]:
        """Every execution of a recording that was ended, by order of ending."""
        rows = self._bodies("SELECT body FROM ends ORDER BY rowid")
        return [msgspec.msgpack.decode(body, type=EndRow) for body in rows]

    def ledgers(self) -> dict[str, Ledger]:
        """Ledgers by execution id."""
        rows = self._writer.read("SELECT execution_id, body FROM ledgers")
        return {key: msgspec.msgpack.decode(body, type=Ledger) for key, body in rows}

    def groups(self) -> list[GroupRow]:
        """Every group in order of dispatch."""
        rows = [
            msgspec.msgpack.decode(b, type=GroupRow)
            for b in self._bodies("SELECT body FROM groups")
        ]
        return sorted(rows, key=lambda row: row.index)

    def steps(self) -> list[StepRow]:
        """Every optimiser step in order."""
        rows = self._bodies("SELECT body FROM steps ORDER BY step")
        return [msgspec.msgpack.decode(body, type=StepRow) for body in rows]

    def events(self, kind: str) -> list[EventRow]:
        """Events of one kind, in order."""
        rows = self._bodies("SELECT body FROM events WHERE kind = ? ORDER BY id", (kind,))
        return [msgspec.msgpack.decode(body, type=EventRow) for body in rows]

    def lives(self) -> list[LifeRow]:
        """Every process that wrote to it, in order; of older versions none."""
        rows = self._writer.read("SELECT began, alive FROM lives ORDER BY id")
        return [LifeRow(began=began, alive=alive) for began, alive in rows]

    def meta(self, key: str) -> str | None:
        """A fact about the run, or None."""
        rows = self._writer.read("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def _numbered_events(self) -> list[tuple[int, EventRow]]:
        rows = self._writer.read("SELECT id, body FROM events ORDER BY id")
        return [(number, msgspec.msgpack.decode(body, type=EventRow)) for number, body in rows]

    def _bodies(self, sql: str, values: tuple[str, ...] = ()) -> list[bytes]:
        return [row[0] for row in self._writer.read(sql, values)]


def _execution(record: ExecutionRecord) -> Statement:
    values = (record.execution_id, msgspec.msgpack.encode(record))
    return ("INSERT INTO executions VALUES (?, ?)", values)


def _ledgers(ledgers: dict[str, Ledger]) -> list[Statement]:
    return [
        ("INSERT OR REPLACE INTO ledgers VALUES (?, ?)", (name, msgspec.msgpack.encode(ledger)))
        for name, ledger in ledgers.items()
    ]


def _group(row: GroupRow) -> Statement:
    return (
        "INSERT OR REPLACE INTO groups VALUES (?, ?)",
        (row.group_id, msgspec.msgpack.encode(row)),
    )
