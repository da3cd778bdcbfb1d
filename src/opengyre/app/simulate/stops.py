"""A run's time without its stops.

Invariant: run time counts seconds from the first dispatch in which a process of the run was training; it
stands still from a process's last sign of life until the next one dispatches. It never runs backwards.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from opengyre.core.reasons import CellRole
from opengyre.store.run import RunStore


@dataclass(frozen=True)
class Stop:
    """A process ended and another one went on."""

    at: float
    """Seconds of run time: the last sign of life of the one, and the first dispatch of the other."""
    seconds: float
    """Of the store's clock between the two. That no process was there is on no clock."""


class Timeline:
    """The store's clock as run time."""

    def __init__(self, zero: float, gaps: Sequence[tuple[float, float]] = ()) -> None:
        """zero: the first dispatch. gaps: (from, to) on the store's clock, in order and apart."""
        later = [gap for gap in gaps if gap[0] >= zero]
        self._zero = zero
        self._ends = [end for _, end in later]
        self._starts = [start for start, _ in later]
        self._taken = [0.0, *accumulate(end - start for start, end in later)]

    def run(self, at: float) -> float:
        """Run time of a time of the store's clock; in a stop: when that began."""
        place = bisect_left(self._ends, at)
        if place < len(self._starts):
            at = min(at, self._starts[place])
        return at - self._zero - self._taken[place]

    def life(self, at: float) -> int:
        """How many stops were over by then: which process recorded this time."""
        return bisect_left(self._ends, at)

    @property
    def stops(self) -> tuple[Stop, ...]:
        """In order."""
        both = zip(self._starts, self._ends, strict=True)
        return tuple(Stop(self.run(start), end - start) for start, end in both)


def find_gaps(store: RunStore, dispatches: Sequence[float]) -> list[tuple[float, float]]:
    """(last sign of life, first dispatch after it), each time training began again.

    Stores of older versions do not say when a process was last alive: there it is the last time that
    was recorded before.
    """
    begun = [event.at for event in store.events("phase") if event.fields["name"] == "training"]
    lives = [life.began for life in store.lives()]
    gaps = []
    for before, again in pairwise(begun):
        known = [at for at in lives if before < at <= again]
        # A process that died while it started has a life too, and did nothing: the first one counts.
        died = min(known) if known else _last_sign(store, again)
        gaps.append((died, _goes_on(store, again, dispatches)))
    return gaps


def _goes_on(store: RunStore, again: float, dispatches: Sequence[float]) -> float:
    """Groups that were left are read back before anything is dispatched."""
    levels = (event.at for event in store.events("waterlevel"))
    return min((at for at in (*dispatches, *levels) if at >= again), default=again)


def _last_sign(store: RunStore, again: float) -> float:
    return max((at for at in _signs(store) if at < again), default=again)


def _signs(store: RunStore) -> Iterator[float]:
    """All that is recorded, but for what a process says of cells while it starts."""
    yield from (row.at for row in store.steps())
    yield from (record.ended_at for record in store.executions())
    yield from (call.ended_at for name in store.recorded() for call in store.calls(name))
    for kind in ("phase", "waterlevel", "published", "switch", "role"):
        for event in store.events(kind):
            if event.fields.get("role") != CellRole.ROLLOUT:
                yield event.at
