"""Keeps Python's garbage collector from stopping the event loop.

Invariant: while a server runs nothing is collected but what this module says: young objects at every
beat, everything only when no call waited for a minute or when memory doubled. The interpreter's own
rule counts objects made less objects gone; where old ones go as fast as new ones come it sleeps, and
then looks at everything new at once. What outlives some beats is set aside: it is still freed with its
last reference, but a cycle among such objects stays until everything is looked at, which takes a tenth
of a second and more for the trees of many executions.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable

from opengyre.app.machine import peak_bytes
from opengyre.core.protocols import Clock

log = logging.getLogger(__name__)

BEAT_S = 0.05
"""Between two looks at young objects: a busy core makes a few thousand in that time, and looking at
those takes a millisecond or two."""
BEATS_OF_YOUTH = 20
"""After so many beats what is left is set aside: calls that were being read then are answered or
wait for the engine."""
TOO_MANY_YOUNG = 20_000
"""Young objects that are set aside without a look, which would take too long: somebody reads a body
of a million tokens."""
WORTH_IT = 1_000_000
"""Objects that were set aside, from which all of them are looked at when no call waits. Calls leave
hardly a cycle behind, so it is seldom worth the time."""
QUIET_BEATS = 1200
"""Beats without a waiting call until then, a minute: in a shorter pause the next call comes too soon, and
a look at the trees of a thousand executions takes a third of a second."""
ROOM = 1 << 30
"""Bytes by which memory may double without everything being looked at while calls wait."""


@contextlib.asynccontextmanager
async def short_collections(clock: Clock, idle: Callable[[], bool]) -> AsyncIterator[None]:
    """While a server runs. idle tells whether nobody waits for it."""
    aside = Aside(peak_bytes)
    automatic = gc.isenabled()
    gc.disable()
    aside.look_at_all()
    beating = asyncio.ensure_future(_beat(aside, clock, idle))
    try:
        yield
    finally:
        beating.cancel()
        gc.unfreeze()
        if automatic:
            gc.enable()


class Aside:
    """What is set aside, and when everything is looked at. peak: most bytes of memory until now."""

    def __init__(self, peak: Callable[[], int]) -> None:
        self.objects = 0
        """Set aside since everything was looked at; how many are left is not known, since counting
        them takes as long as a collection."""
        self._peak, self._peak_then = peak, peak()
        self._beats = self._quiet = 0

    def beat(self, *, idle: bool) -> None:
        """Look at what is due."""
        self._beats += 1
        if len(gc.get_objects(generation=0)) > TOO_MANY_YOUNG:
            self._set_aside()
        else:
            gc.collect(0)
        if self._beats % BEATS_OF_YOUTH == 0:
            self._set_aside()
        self._quiet = self._quiet + 1 if idle else 0
        if self._quiet >= QUIET_BEATS and self.objects >= WORTH_IT:
            self.look_at_all()
        elif self._peak() >= 2 * self._peak_then + ROOM:
            log.warning("memory doubled: looking at every object while calls wait")
            self.look_at_all()

    def look_at_all(self) -> None:
        """Free what only holds itself; takes long."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.objects, self._peak_then = 0, self._peak()

    def _set_aside(self) -> None:
        self.objects += sum(len(gc.get_objects(generation=age)) for age in (0, 1))
        gc.freeze()


async def _beat(aside: Aside, clock: Clock, idle: Callable[[], bool]) -> None:
    while True:
        await clock.sleep(BEAT_S)
        aside.beat(idle=idle())
