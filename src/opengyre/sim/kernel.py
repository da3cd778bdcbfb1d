"""Virtual time and what happens in it.

Invariant: events happen in order of time, and at the same time in the order of their numbers, which
are given out in the order of their making; so a simulation is the same from run to run.

One heap of all that is to come would grow with the world, past the processor's caches, and each event
would wander through it. So what is to come lies unsorted in slots of time, whose width follows from how
much happens. A slot is sorted when its time comes; only what is made within it goes into a heap.
"""

import contextlib
import gc
import heapq
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from opengyre.core.errors import OpenGyreError

About = TypeVar("About")
"""What an action is about: kept beside it, since a closure for each event costs more."""
Entry = tuple[float, int, Callable[[Any], None], object]
"""When, number, action, about."""

NEVER = math.inf
"""Seconds."""
FEW, MANY = 64, 4096
"""Events of a slot. With fewer, turning to the next slot costs more than it saves; with more, what they
touch does not stay in a cache of some hundred kilobytes."""
FACTOR = 8.0
"""By which the width of slots changes. A power of two, so that their borders are exact numbers."""
NARROWEST_S = 2.0**-20
"""A microsecond: more in one is at one time, and the numbers of slots stay small enough to be exact."""
PATIENCE = 8
"""Slots with few events, one after another, before they become wider: work comes in waves."""


class SimulationError(OpenGyreError):
    """The simulated world came to a stop before the scheduler finished, or never would."""


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep Python's garbage collector from looking for cycles: a world makes none while it runs, and
    looking means going through all of it, the more often the larger it is."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Kernel:
    """The clock and the events to come."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the simulation began."""
        self.current = 0
        """Number of the event that happens now."""
        self.events = 0
        """That happened so far."""
        self._made = 0
        self._slot: list[Entry] = []
        """What happens before _until, the next at the end."""
        self._fresh: list[Entry] = []
        """A heap of what happens before _until and was made since the slot began."""
        self._until = 0.0
        self._width = 1.0
        """Seconds of a slot."""
        self._later: dict[int, list[Entry]] = {}
        """By slot: what happens from number * _width on."""
        self._slots: list[int] = []
        """A heap of the numbers in _later."""
        self._turned_at = 0
        """Number of events when the slot began."""
        self._sparse = 0
        """Slots with few events, one after another."""

    def number(self) -> int:
        """A place among the events of one time, for one that may be made later."""
        self._made += 1
        return self._made

    def after(self, seconds: float, action: Callable[[About], None], about: About) -> int:
        """Let something happen in so many seconds; after infinitely many it never does. Returns its
        number."""
        self._made = number = self._made + 1
        when = self.now + seconds
        if when < self._until:
            assert seconds >= 0.0, f"{seconds} s from now"
            heapq.heappush(self._fresh, (when, number, action, about))
        else:
            self._put_off((when, number, action, about))
        return number

    def put(self, when: float, number: int, action: Callable[[About], None], about: About) -> None:
        """Let something happen at a time that is not past, in the place of that number."""
        assert when >= self.now, f"{when} is before {self.now}"
        if when < self._until:
            heapq.heappush(self._fresh, (when, number, action, about))
        else:
            self._put_off((when, number, action, about))

    def run(self, done: Callable[[], bool], most_events: int) -> None:
        """Until done. Raises SimulationError when nothing is left to happen, or too much happens."""
        slot, fresh = self._slot, self._fresh
        last = self.events + most_events
        while not done():
            if not slot and not fresh and not self._turn():
                raise SimulationError(f"nothing can happen any more after {self.now:.1f} s")
            if self.events >= last:
                raise SimulationError(f"{most_events} events and no end, at {self.now:.1f} s")
            made_since = fresh and (not slot or fresh[0] < slot[-1])
            self.now, self.current, action, about = (
                heapq.heappop(fresh) if made_since else slot.pop()
            )
            self.events += 1
            action(about)

    def _put_off(self, entry: Entry) -> None:
        when = entry[0]
        if when == NEVER:
            return
        slot = int(when / self._width)
        later = self._later.get(slot)
        if later is not None:
            later.append(entry)
        else:
            self._later[slot] = [entry]
            heapq.heappush(self._slots, slot)

    def _turn(self) -> bool:
        """Go on to the next slot; False when there is none."""
        if not self._slots:
            return False
        self._adapt(self.events - self._turned_at)
        self._turned_at = self.events
        number = heapq.heappop(self._slots)
        self._slot += self._later.pop(number)
        self._slot.sort(reverse=True)
        self._until = (number + 1) * self._width
        return True

    def _adapt(self, happened: int) -> None:
        self._sparse = self._sparse + 1 if happened < FEW else 0
        if happened > MANY and self._width > NARROWEST_S:
            self._set_width(self._width / FACTOR)
        elif self._sparse > PATIENCE:
            self._sparse = 0
            self._set_width(self._width * FACTOR)

    def _set_width(self, width: float) -> None:
        entries = [entry for slot in self._later.values() for entry in slot]
        self._width = width
        self._later.clear()
        self._slots.clear()
        for entry in entries:
            self._put_off(entry)
