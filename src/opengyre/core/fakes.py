"""Stand-ins for the protocols, for tests and replays."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

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

Entry = tuple[str, str, Any]
"""What happened, to which execution, with what."""


class FakeClock:
    """Virtual time: sleeping advances it at once."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


class CountingIds:
    """kind-1, kind-2, …"""

    def __init__(self) -> None:
        self._counter = itertools.count(1)

    def new(self, kind: str) -> str:
        return f"{kind}-{next(self._counter)}"


class MemoryRecorder:
    """Keeps calls in a list, in order of recording."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def record(self, call: Call) -> None:
        self.calls.append(call)


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
        self._tell(("opened", door.execution_id, door))

    def closed(self, execution_id: str) -> None:
        self._tell(("closed", execution_id, None))

    def counted(self, execution_id: str, tallies: Tallies) -> None:
        self._tell(("counted", execution_id, tallies))

    def begun(self, begun: Begun) -> None:
        self._tell(("begun", begun.execution_id, begun))

    def progressed(self, execution_id: str, call_id: str, progress: Progress) -> None:
        self._tell(("progressed", execution_id, (call_id, progress)))

    def dropped(self, execution_id: str, call_id: str) -> None:
        self._tell(("dropped", execution_id, call_id))

    async def finished(self, call: Call, trace: Trace, told: Told | None) -> None:
        if self._dead:
            raise StoreError("the process died")
        recorded = RecordedCall(call=call, trace=trace, told=told, delivered=told is None)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((len(self._entries), done))
        self._tell(("finished", call.execution_id, recorded))
        await done

    def delivered(self, execution_id: str, call_id: str) -> None:
        self._tell(("delivered", execution_id, call_id))

    def calls(self, execution_id: str) -> list[Call]:
        """What was recorded of an execution, closed or not."""
        return [
            value.call
            for kind, whose, value in self._entries[: self._durable]
            if kind == "finished" and whose == execution_id
        ]

    def open_doors(self) -> list[OpenDoor]:
        doors: dict[str, OpenDoor] = {}
        for kind, execution_id, value in self._entries[: self._durable]:
            if kind == "opened":
                doors[execution_id] = OpenDoor(
                    door=value, tallies=Tallies(), calls=[], unfinished=[]
                )
            elif kind == "closed":
                del doors[execution_id]
            else:
                doors[execution_id] = _after(doors[execution_id], kind, value)
        return list(doors.values())

    def _tell(self, entry: Entry) -> None:
        if self._dead:
            return
        self._entries.append(entry)
        if self.at_once:
            self.commit(len(self._entries))


def _after(door: OpenDoor, kind: str, value: Any) -> OpenDoor:
    """The door once this was told of it."""
    calls, unfinished = door.calls, door.unfinished
    match kind:
        case "counted":
            return replace(door, tallies=value)
        case "begun":
            return replace(door, unfinished=[*unfinished, UnfinishedCall(begun=value, progress=[])])
        case "progressed":
            call_id, progress = value
            unfinished = [
                replace(one, progress=[*one.progress, progress])
                if one.begun.call_id == call_id
                else one
                for one in unfinished
            ]
            return replace(door, unfinished=unfinished)
        case "delivered":
            calls = [
                replace(one, delivered=one.delivered or one.call.call_id == value) for one in calls
            ]
            return replace(door, calls=calls)
    gone = value.call.call_id if kind == "finished" else value
    left = [one for one in unfinished if one.begun.call_id != gone]
    return replace(door, unfinished=left, calls=[*calls, value] if kind == "finished" else calls)
