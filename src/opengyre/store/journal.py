"""What lets another proxy take over: open doors, unfinished calls and their tokens, undelivered answers.

Invariant: a call is either unfinished or recorded, in one transaction's change from the one to the
other. Of an execution that was closed, only its calls are left.
"""

import msgspec

from opengyre.core.journal import (
    Begun,
    DoorRecord,
    OpenDoor,
    Progress,
    RecordedCall,
    Tallies,
    Told,
    Trace,
    UnfinishedCall,
)
from opengyre.core.records import Call
from opengyre.store.writer import Statement, Writer

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class StoreJournal:
    """See core.protocols.Journal."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def opened(self, door: DoorRecord) -> None:
        values = (door.execution_id, encode(door), encode(Tallies()))
        self._writer.post(("INSERT INTO doors VALUES (?, ?, ?)", values))

    def closed(self, execution_id: str) -> None:
        self._writer.post(*forget_door(execution_id))

    def counted(self, execution_id: str, tallies: Tallies) -> None:
        sql = "UPDATE doors SET tallies = ? WHERE execution_id = ?"
        self._writer.post((sql, (encode(tallies), execution_id)))

    def begun(self, begun: Begun) -> None:
        values = (begun.execution_id, begun.call_id, begun.trace.number, encode(begun))
        self._writer.post(("INSERT INTO begun VALUES (?, ?, ?, ?)", values))

    def progressed(self, execution_id: str, call_id: str, progress: Progress) -> None:
        sql = "INSERT INTO progress (execution_id, call_id, body) VALUES (?, ?, ?)"
        self._writer.post((sql, (execution_id, call_id, encode(progress))))

    def dropped(self, execution_id: str, call_id: str) -> None:
        self._writer.post(*_not_unfinished(execution_id, call_id))

    async def finished(self, call: Call, trace: Trace, told: Told | None) -> None:
        saying = None if told is None else encode(told)
        values = (call.execution_id, call.call_id, call.index, told is None, encode(trace), saying)
        await self._writer.write(
            insert_call(call),
            ("INSERT INTO traces VALUES (?, ?, ?, ?, ?, ?)", values),
            *_not_unfinished(call.execution_id, call.call_id),
            at=call.ended_at,
        )

    def delivered(self, execution_id: str, call_id: str) -> None:
        sql = "UPDATE traces SET delivered = 1 WHERE execution_id = ? AND call_id = ?"
        self._writer.post((sql, (execution_id, call_id)))

    async def settled(self) -> None:
        """Return once everything told before is durable."""
        await self._writer.settled()

    def open_doors(self) -> list[OpenDoor]:
        rows = self._writer.read("SELECT execution_id, body, tallies FROM doors ORDER BY rowid")
        return [
            OpenDoor(
                door=decode(body, type=DoorRecord),
                tallies=decode(tallies, type=Tallies),
                calls=self._calls(execution_id),
                unfinished=self._unfinished(execution_id),
            )
            for execution_id, body, tallies in rows
        ]

    def _calls(self, execution_id: str) -> list[RecordedCall]:
        rows = self._writer.read(
            "SELECT calls.body, trace, told, delivered FROM traces JOIN calls USING (execution_id, idx) "
            "WHERE execution_id = ? ORDER BY idx",
            (execution_id,),
        )
        return [
            RecordedCall(
                call=decode(body, type=Call),
                trace=decode(trace, type=Trace),
                told=None if told is None else decode(told, type=Told),
                delivered=bool(delivered),
            )
            for body, trace, told, delivered in rows
        ]

    def _unfinished(self, execution_id: str) -> list[UnfinishedCall]:
        rows = self._writer.read(
            "SELECT call_id, body FROM begun WHERE execution_id = ? ORDER BY number",
            (execution_id,),
        )
        return [
            UnfinishedCall(
                begun=decode(body, type=Begun), progress=self._progress(execution_id, call_id)
            )
            for call_id, body in rows
        ]

    def _progress(self, execution_id: str, call_id: str) -> list[Progress]:
        rows = self._writer.read(
            "SELECT body FROM progress WHERE execution_id = ? AND call_id = ? ORDER BY id",
            (execution_id, call_id),
        )
        return [decode(body, type=Progress) for (body,) in rows]


def insert_call(call: Call) -> Statement:
    """Refused when the execution has a call of that index already."""
    return ("INSERT INTO calls VALUES (?, ?, ?)", (call.execution_id, call.index, encode(call)))


def _not_unfinished(execution_id: str, call_id: str) -> list[Statement]:
    return [
        (f"DELETE FROM {table} WHERE execution_id = ? AND call_id = ?", (execution_id, call_id))
        for table in ("begun", "progress")
    ]


def forget_door(execution_id: str) -> list[Statement]:
    """What was needed to go on with it; its calls stay."""
    tables = ("doors", "begun", "progress", "traces")
    return [(f"DELETE FROM {table} WHERE execution_id = ?", (execution_id,)) for table in tables]
