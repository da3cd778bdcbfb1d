"""The interfaces that rooms of the same height meet in: time, ids, generation, recording."""

from collections.abc import AsyncIterator
from typing import Protocol

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
