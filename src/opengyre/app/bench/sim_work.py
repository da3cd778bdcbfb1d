"""What the interpreter does for an event: counted, not timed.

Invariant: the same world gives the same count on every machine, whatever else runs there. What is
counted are bytecode instructions; what one instruction does in C (a sort, an insertion into a list)
it does not show.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from opengyre.app.bench.sim_world import bench_setting
from opengyre.sim.world import simulate

if TYPE_CHECKING:
    from _typeshed import TraceFunction


class Instructions:
    """Counts the bytecode instructions of whatever is called."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, action: Callable[[], object]) -> None:
        """Call it and count; some fifty times slower than without."""
        before = sys.gettrace()
        sys.settrace(self._watch)
        try:
            action()
        finally:
            sys.settrace(before)

    def _watch(self, frame: FrameType, happened: str, _about: object, /) -> "TraceFunction":
        if happened == "opcode":
            self.count += 1
        elif happened == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._watch


def count_world(cells: int, steps: int) -> float:
    """Instructions an event, in the bench's world of so many cells."""
    instructions, events = Instructions(), 0

    def play() -> None:
        nonlocal events
        events = simulate(bench_setting(cells, steps, seed=0)).events

    instructions.of(play)
    return instructions.count / events
