"""Virtual time and what happens in it.

Invariant: events happen in order of time, and at the same time in the order they were made; so a
simulation is the same from run to run.
"""

import heapq
from collections.abc import Callable

from opengyre.core.errors import OpenGyreError

Action = Callable[[], None]


class SimulationError(OpenGyreError):
    """The simulated world came to a stop before the scheduler finished, or never would."""


class Kernel:
    """The event heap."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the simulation began."""
        self.events = 0
        """That happened so far."""
        self._heap: list[tuple[float, int, Action]] = []
        self._made = 0

    def at(self, when: float, action: Action) -> None:
        """Let something happen at a time that is not past."""
        assert when >= self.now, f"{when} is before {self.now}"
        self._made += 1
        heapq.heappush(self._heap, (when, self._made, action))

    def after(self, seconds: float, action: Action) -> None:
        """Let something happen in so many seconds."""
        self.at(self.now + seconds, action)

    def run(self, done: Callable[[], bool], most_events: int) -> None:
        """Until done. Raises SimulationError when nothing is left to happen, or too much happens."""
        heap = self._heap
        last = self.events + most_events
        while not done():
            if not heap:
                raise SimulationError(f"nothing can happen any more after {self.now:.1f} s")
            if self.events >= last:
                raise SimulationError(f"{most_events} events and no end, at {self.now:.1f} s")
            self.now, _, action = heapq.heappop(heap)
            self.events += 1
            action()
