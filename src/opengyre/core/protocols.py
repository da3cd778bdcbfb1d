"""The interfaces that rooms of the same height meet in: time, ids, generation, recording."""

from collections.abc import AsyncIterator
from typing import Protocol

from opengyre.core.journal import Begun, DoorRecord, OpenDoor, Progress, Tallies, Told, Trace
from opengyre.core.records import Call, GenerateRequest, TokenChunk


class Clock(Protocol):
    """Time as an argument. app/wall.py has the real one, core/fakes.py the virtual one."""

    def now(self) -> float:
        """Seconds since the clock's own zero; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock."""
        ...


class IdSource(Protocol):
    """Fresh ids; a replay passes the same ones."""

    def new(self, kind: str) -> str:
        """A new id that starts with kind, unique in the run, of [a-z0-9-] only."""
        ...


class Generator(Protocol):
    """Whatever turns a prompt into tokens: a cluster of cells, one engine, a script."""

    def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """Yield chunks until one has a finish. Closing the iterator cancels the request.

        Raises EngineError when the request cannot be served at all.
        """
        ...


class Recorder(Protocol):
    """Where a call becomes durable before its reply leaves."""

    async def record(self, call: Call) -> None:
        """Return once the call would survive a crash. Raises StoreError."""
        ...


class Journal(Protocol):
    """Where open executions survive the death of their proxy.

    Only finished() waits. All others return at once; what they tell becomes durable soon, in the
    order in which it was told, and before anything that is told later.
    """

    def opened(self, door: DoorRecord) -> None:
        """A door was opened."""
        ...

    def closed(self, execution_id: str) -> None:
        """Forget it: its calls stay recorded, what was needed to go on with it is gone."""
        ...

    def counted(self, execution_id: str, tallies: Tallies) -> None:
        """A door's counts as they are now."""
        ...

    def begun(self, begun: Begun) -> None:
        """A generation begins."""
        ...

    def progressed(self, execution_id: str, call_id: str, progress: Progress) -> None:
        """It gave these tokens since the last time."""
        ...

    def dropped(self, execution_id: str, call_id: str) -> None:
        """It failed and will not be recorded."""
        ...

    async def finished(self, call: Call, trace: Trace, told: Told | None) -> None:
        """Record a call and forget that it was unfinished. Returns once that would survive a crash.

        Raises StoreError.
        """
        ...

    def delivered(self, execution_id: str, call_id: str) -> None:
        """A recorded call's answer went out whole."""
        ...

    def open_doors(self) -> list[OpenDoor]:
        """Every door that was opened and not closed, in order of opening."""
        ...
