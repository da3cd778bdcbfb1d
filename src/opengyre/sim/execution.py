"""One run of an agent program, as the simulator keeps it.

Invariant: it is at one of four places: in the queue, on a cell, between cells (homeless), or ended; it
has a call on a cell, or a call that is held, or neither.
"""

from array import array
from typing import TYPE_CHECKING

from opengyre.sim.script import Script

if TYPE_CHECKING:
    from opengyre.sim.cells import SimCell


NONE_DRAWN = array("d")
"""Of an execution that did not start, or is over, or is recorded."""


class Execution:
    """One run of an agent program."""

    __slots__ = (
        "cache",
        "cached",
        "calls_left",
        "cell",
        "context",
        "drawn",
        "ended",
        "group_id",
        "held_s",
        "held_since",
        "member",
        "move",
        "needs",
        "sampled",
        "script",
        "seed",
        "served",
        "started_at",
        "truncated",
        "used",
        "warm",
    )

    def __init__(
        self, member: str, group_id: str, seed: int, calls: int, script: Script | None = None
    ) -> None:
        self.member, self.group_id = member, group_id
        self.seed = seed
        self.drawn = NONE_DRAWN
        """All that is drawn for it, from its start to its verdict."""
        self.used = 0
        """How many of these it has used."""
        self.script = script
        """What it does, when it took place before; it has as many turns as calls."""
        self.calls_left = calls
        self.context = 0.0
        """Tokens of its conversation so far."""
        self.cached = 0.0
        """Of these, how many its cell holds the KV of."""
        self.sampled = 0.0
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
