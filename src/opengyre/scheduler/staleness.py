"""Which groups may be consumed next so that no group ever exceeds the staleness bound.

A slot is one group's place in a step. A group dispatched under version v is due in the burst of
version v + bound at the latest. Invariant: for every k >= 0, no more groups are due within the next
k bursts than there are slots until the end of those bursts. Where the two are equal, the next slot
must go to one of those groups, else any group may have it; so the invariant outlives each slot, and
at the last slot of a burst nothing due in it is left.

Dispatching keeps it too: new groups are due last, and all outstanding groups together, at most
(phi + mu) * B at the start of a burst, are fewer than the (bound + 1) * mu * B slots until then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Slots:
    """Places for groups that are still free."""

    now: int
    """Of the burst under way."""
    per_burst: int
    """Of each later burst, mu * B."""
    total: int
    """Until the end of the run."""

    def within(self, bursts: int) -> int:
        """Until the end of so many bursts after the one under way."""
        return min(self.now + bursts * self.per_burst, self.total)


def newest_allowed(waiting: Mapping[int, int], version: int, bound: int, slots: Slots) -> int:
    """The newest dispatch version that the next slot of the burst may take.

    waiting: how many outstanding groups of each dispatch version have no slot, ready or not.
    """
    for bursts in range(bound):
        newest = version + bursts - bound
        due = _due(waiting, newest)
        if due and due >= slots.within(bursts):
            return newest
    return version


def holds(waiting: Mapping[int, int], version: int, bound: int, slots: Slots) -> bool:
    """Whether every waiting group can still be consumed within the bound."""
    return all(
        _due(waiting, version + bursts - bound) <= slots.within(bursts)
        for bursts in range(bound + 1)
    )


def _due(waiting: Mapping[int, int], newest: int) -> int:
    return sum(count for version, count in waiting.items() if version <= newest)


@dataclass(frozen=True, slots=True)
class Staleness:
    """Age of one consumed group."""

    versions: int
    """Publications between its dispatch and its consumption."""
    steps: int
    """Optimiser steps between the weights it was dispatched under and those it met."""


@dataclass(frozen=True)
class Spread:
    """Mean, 95th percentile (nearest rank) and maximum."""

    mean: float
    p95: int
    max: int


@dataclass(frozen=True)
class StalenessSummary:
    """Staleness of all groups that were consumed; zeros when there are none."""

    groups: int
    versions: Spread
    steps: Spread


def summarise(seen: Sequence[Staleness]) -> StalenessSummary:
    """Sum up the ages of the consumed groups."""
    return StalenessSummary(
        groups=len(seen),
        versions=_spread([one.versions for one in seen]),
        steps=_spread([one.steps for one in seen]),
    )


def _spread(values: list[int]) -> Spread:
    if not values:
        return Spread(0.0, 0, 0)
    rank = -(-len(values) * 95 // 100)
    return Spread(sum(values) / len(values), sorted(values)[rank - 1], max(values))
