"""A journal in memory, whose disk and whose death a test decides.

Invariant: what another process finds is exactly what was durable when this one died.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from opengyre.core.errors import StoreError
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


@dataclass(frozen=True)
class Entry:
    """One thing that a journal was told."""

    execution_id: str
    change: Callable[[OpenDoor | None], OpenDoor | None]
    """What it makes of the door; None is a door that is not open."""
    call: Call | None = None
    """That it records."""


class MemoryJournal:
    """A journal whose disk writes when it is told to, and whose process can die at any time.

    Implements core.protocols.Journal.
    """

    def __init__(self, written: Sequence[Entry] = (), *, at_once: bool = True) -> None:
        self._entries: list[Entry] = list(written)
        self._durable = len(self._entries)
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._dead = False
        self.at_once = at_once
        """Whether everything is durable as soon as it is told."""

    def commit(self, count: int = 1) -> None:
        """The next entries become durable."""
        self._durable = min(self._durable + count, len(self._entries))
        for index, done in self._waiting:
            if index < self._durable and not done.done():
                done.set_result(None)

    def die(self) -> "MemoryJournal":
        """What another process finds; this one writes nothing any more."""
        self._dead = True
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(StoreError("the process died"))
        return MemoryJournal(self._entries[: self._durable], at_once=False)

    def opened(self, door: DoorRecord) -> None:
        found = OpenDoor(door=door, tallies=Tallies(), calls=[], unfinished=[])
        self._tell(Entry(door.execution_id, lambda _before: found))

    def closed(self, execution_id: str) -> None:
        self._tell(Entry(execution_id, lambda _before: None))

    def counted(self, execution_id: str, tallies: Tallies) -> None:
        self._tell_of(execution_id, lambda door: replace(door, tallies=tallies))

    def begun(self, begun: Begun) -> None:
        one = UnfinishedCall(begun=begun, progress=[])
        self._tell_of(
            begun.execution_id, lambda door: replace(door, unfinished=[*door.unfinished, one])
        )

    def progressed(self, execution_id: str, call_id: str, progress: Progress) -> None:
        def change(door: OpenDoor) -> OpenDoor:
            unfinished = [
                replace(one, progress=[*one.progress, progress])
                if one.begun.call_id == call_id
                else one
                for one in door.unfinished
            ]
            return replace(door, unfinished=unfinished)

        self._tell_of(execution_id, change)

    def dropped(self, execution_id: str, call_id: str) -> None:
        self._tell_of(execution_id, lambda door: _not_unfinished(door, call_id))

    async def finished(self, call: Call, trace: Trace, told: Told | None) -> None:
        if self._dead:
            raise StoreError("the process died")
        recorded = RecordedCall(call=call, trace=trace, told=told, delivered=told is None)

        def change(door: OpenDoor) -> OpenDoor:
            left = _not_unfinished(door, call.call_id)
            return replace(left, calls=[*door.calls, recorded])

        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((len(self._entries), done))
        self._tell_of(call.execution_id, change, call)
        await done

    def delivered(self, execution_id: str, call_id: str) -> None:
        def change(door: OpenDoor) -> OpenDoor:
            calls = [
                replace(one, delivered=one.delivered or one.call.call_id == call_id)
                for one in door.calls
            ]
            return replace(door, calls=calls)

        self._tell_of(execution_id, change)

    def calls(self, execution_id: str) -> list[Call]:
        """What was recorded of an execution, closed or not."""
        return [
            entry.call
            for entry in self._entries[: self._durable]
            if entry.call is not None and entry.execution_id == execution_id
        ]

    def open_doors(self) -> list[OpenDoor]:
        doors: dict[str, OpenDoor | None] = {}
        for entry in self._entries[: self._durable]:
            doors[entry.execution_id] = entry.change(doors.get(entry.execution_id))
        return [door for door in doors.values() if door is not None]

    def _tell_of(
        self, execution_id: str, change: Callable[[OpenDoor], OpenDoor], call: Call | None = None
    ) -> None:
        """Of an execution whose door is open; nothing, once it is closed."""
        self._tell(Entry(execution_id, lambda door: None if door is None else change(door), call))

    def _tell(self, entry: Entry) -> None:
        if self._dead:
            return
        self._entries.append(entry)
        if self.at_once:
            self.commit(len(self._entries))


def _not_unfinished(door: OpenDoor, call_id: str) -> OpenDoor:
    left = [one for one in door.unfinished if one.begun.call_id != call_id]
    return replace(door, unfinished=left)
