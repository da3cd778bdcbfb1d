"""Keeps Python's garbage collector from stopping the event loop.

Invariant: a collection that begins by itself looks at young objects only. What outlives two of them
is set aside: it is still freed with its last reference, but a cycle among such objects stays until
everything is looked at, which takes a tenth of a second and more for the trees of many executions. So
that is done when no call waits, or when there is so much to look at that memory matters more.
"""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable

from opengyre.core.protocols import Clock

MIDDLE = 1
"""The older of the two young generations; it is looked at after about 7,000 more objects."""
BEAT_S = 5.0
"""Between two looks whether no call waits."""
WORTH_IT = 200
"""Times that something was set aside, from which all of it is looked at when no call waits: over a
million objects. Calls leave hardly a cycle behind, so it is seldom worth the time."""
TOO_MANY = 1000
"""Such times from which it is looked at even so: seven million objects, a gigabyte at least."""


@contextlib.asynccontextmanager
async def short_collections(clock: Clock, idle: Callable[[], bool]) -> AsyncIterator[None]:
    """While a server runs. idle tells whether nobody waits for it."""
    aside = Aside()
    aside.look_at_all()
    gc.callbacks.append(aside.collected)
    beating = asyncio.ensure_future(_beat(aside, clock, idle))
    try:
        yield
    finally:
        beating.cancel()
        gc.callbacks.remove(aside.collected)
        gc.unfreeze()


class Aside:
    """What is set aside: counted by times, since counting objects takes as long as a collection."""

    def __init__(self) -> None:
        self.times = 0

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """For gc.callbacks."""
        if phase == "stop" and info["generation"] >= MIDDLE:
            gc.freeze()
            self.times += 1

    def look_at_all(self) -> None:
        """Free what only holds itself; takes long."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.times = 0


async def _beat(aside: Aside, clock: Clock, idle: Callable[[], bool]) -> None:
    while True:
        await clock.sleep(BEAT_S)
        if aside.times >= (WORTH_IT if idle() else TOO_MANY):
            aside.look_at_all()
