"""Gives the CPU parts of many requests their turn.

Invariant: between two turns the event loop serves everything else that is ready. Without it a
thousand requests that come at once are handled in one pass of the loop, and nobody else for seconds.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from opengyre.core.protocols import Clock


class Turns:
    """One turn at a time, in the order of asking."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Do not wait for anything slow in it."""
        async with self._lock:
            try:
                yield
            finally:
                await self._clock.sleep(0.0)


class OneByOne:
    """An ASGI application that takes up one request a turn; routing a thousand takes long, too."""

    def __init__(self, app: ASGIApp, turns: Turns) -> None:
        self._app, self._turns = app, turns

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._turns.one():
            pass
        await self._app(scope, receive, send)
