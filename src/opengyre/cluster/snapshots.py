"""Which shared-memory slot holds which weights.

Three slots: the newest weights, the published ones and one to write next. A slot that somebody may
still need is never written.
"""

from opengyre.cluster.wire import Snapshot

SLOTS = 3
"""Newest, published, next."""


class Snapshots:
    """Newest and published weights; equal from a publication to the next step."""

    def __init__(self, stamp: int) -> None:
        self.newest = self.published = Snapshot("weights-0", stamp)

    def next(self) -> Snapshot:
        """Where the weights of the next step go."""
        taken = {self.newest.name, self.published.name}
        free = next(n for n in (f"weights-{i}" for i in range(SLOTS)) if n not in taken)
        return Snapshot(free, self.newest.stamp + 1)

    def stepped(self, snapshot: Snapshot) -> None:
        """The snapshot is written."""
        assert snapshot.stamp == self.newest.stamp + 1
        self.newest = snapshot

    def publish(self) -> None:
        """Rollout cells serve the newest from now on."""
        self.published = self.newest
