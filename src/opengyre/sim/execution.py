"""One run of an agent program, as the simulator keeps it.

Invariant: it is at one of four places: in the queue, on a cell, between cells (homeless), or ended; it
has a call on a cell, or a call that is held, or neither.
"""

from array import array
from typing import TYPE_CHECKING

from opengyre.sim.script import Script

if TYPE_CHECKING:
    from opengyre.sim.cells import SimCell


CONTEXT, CACHED, DRAWN = 0, 1, 2
"""Places in an execution's row: tokens of its conversation so far; of these, how many its cell holds the
KV of; then all that is drawn for it from its start to its verdict."""
NOTHING = array("d")
"""The row of an execution that did not start, or is over."""


class Execution:
    """One run of an agent program."""

    __slots__ = (
        "cache",
        "calls_left",
        "cell",
        "ended",
        "group_id",
        "held_s",
        "held_since",
        "move",
        "needs",
        "place",
        "row",
        "script",
        "seed",
        "served",
        "started_at",
        "truncated",
        "used",
        "warm",
    )

    def __init__(
        self, group_id: str, place: int, seed: int, calls: int, script: Script | None = None
    ) -> None:
        self.group_id, self.place = group_id, place
        self.seed = seed
        self.row = NOTHING
        """What changes with every call, and what is drawn: in one row, so that it lies together."""
        self.used = 0
        """Numbers that it has used of those drawn for it; of a script, answers."""
        self.script = script
        """What it does, when it took place before; it has as many turns as calls."""
        self.calls_left = calls
        self.cell: SimCell | None = None
        self.cache = 0
        """Number of its cell's prefix cache that cached belongs to."""
        self.served = False
        """Whether its cell serves a call of it."""
        self.needs: float | None = None
        """Tokens of service that a held call still needs; None = none is held."""
        self.warm = False
        """Whether the held call's KV cache is, or will be, where it goes on; else its whole context
        is computed there first."""
        self.move = 0
        """Number of its newest move; what an older one announces is void."""
        self.held_since = 0.0
        self.held_s = 0.0
        self.started_at = 0.0
        self.ended = self.truncated = False

    @property
    def member(self) -> str:
        """Its name in the scheduler's language."""
        return f"{self.group_id}-{self.place}"

    @property
    def context(self) -> float:
        """Tokens of its conversation so far."""
        return self.row[CONTEXT]
