"""Where every sampled token of an execution went.

Invariant: sampled = trained + shared + cut + all excluded + all truncated.
"""

from msgspec import Struct

from opengyre.core.errors import OpenGyreError

NO_SPREAD = "no-spread"
"""Excluded for this reason: the group's scored executions do not differ in reward."""


class UnbalancedLedgerError(OpenGyreError):
    """Sampled tokens went missing or were counted twice."""


class Ledger(Struct, kw_only=True):
    """Counts of sampled tokens. Made by tree; read by store and report."""

    sampled: int = 0
    trained: int = 0
    """On exactly one selected path."""
    shared: int = 0
    """On several selected paths; a target once."""
    cut: int = 0
    """Of a trainable role, on no selected path: J_max was reached."""
    excluded: dict[str, int] = {}
    """Never trained, by reason: the call's role, the verdict's kind, NO_SPREAD."""
    truncated: dict[str, int] = {}
    """On a selected path but beyond what could be trained, by reason."""

    @property
    def balanced(self) -> bool:
        """Whether the invariant holds."""
        parts = [self.trained, self.shared, self.cut]
        parts += [*self.excluded.values(), *self.truncated.values()]
        return min(parts) >= 0 and self.sampled == sum(parts)

    def check(self) -> None:
        """Raises UnbalancedLedgerError."""
        if not self.balanced:
            raise UnbalancedLedgerError(f"wanted every sampled token once; found {self}")

    def add(self, other: "Ledger") -> None:
        """Take another execution's counts in."""
        self.sampled += other.sampled
        self.trained += other.trained
        self.shared += other.shared
        self.cut += other.cut
        for reason, tokens in other.excluded.items():
            self.exclude(reason, tokens)
        for reason, tokens in other.truncated.items():
            self.truncated[reason] = self.truncated.get(reason, 0) + tokens

    def exclude(self, reason: str, tokens: int) -> None:
        """Count tokens that are never trained."""
        if tokens:
            self.excluded[reason] = self.excluded.get(reason, 0) + tokens
