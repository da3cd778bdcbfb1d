"""Where every sampled token of an execution went.

Invariant: sampled = trained + shared + cut + all excluded + all truncated, for the whole and for
each role; the roles add up to the whole.
"""

from msgspec import Struct

from opengyre.core.errors import OpenGyreError

ROLE_NOT_RECORDED = "role-not-recorded"
"""Stands for all roles in the sum with a ledger that was written before roles were counted."""


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
    """Never trained, by reason: the call's role, the verdict's kind, a member of Untrained."""
    truncated: dict[str, int] = {}
    """Of a trainable role, but beyond what can be trained whatever J_max is; by reason."""
    by_role: dict[str, "Ledger"] = {}
    """The same counts for each role that sampled; these have no roles themselves. Empty in what
    older versions wrote."""

    @property
    def owned(self) -> int:
        """Targets of the loss."""
        return self.trained + self.shared

    @property
    def balanced(self) -> bool:
        """Whether the invariant holds."""
        if not self._adds_up():
            return False
        if not self.by_role:
            return True
        total = Ledger()
        for part in self.by_role.values():
            total._take(part)
        alone = all(not part.by_role and part._adds_up() for part in self.by_role.values())
        return alone and total._counts() == self._counts()

    def check(self) -> None:
        """Raises UnbalancedLedgerError."""
        if not self.balanced:
            raise UnbalancedLedgerError(f"wanted every sampled token once; found {self}")

    def add(self, other: "Ledger") -> None:
        """Take another execution's counts in."""
        for role, part in (other.by_role or {ROLE_NOT_RECORDED: other}).items():
            self.add_role(role, part)

    def add_role(self, role: str, part: "Ledger") -> None:
        """Take counts in that are all of one role."""
        self._take(part)
        if part.sampled:
            self.by_role.setdefault(role, Ledger())._take(part)

    def exclude(self, reason: str, tokens: int) -> None:
        """Count tokens that are never trained."""
        if tokens:
            self.excluded[reason] = self.excluded.get(reason, 0) + tokens

    def truncate(self, reason: str, tokens: int) -> None:
        """Count tokens that could not be trained."""
        if tokens:
            self.truncated[reason] = self.truncated.get(reason, 0) + tokens

    def _adds_up(self) -> bool:
        parts = [self.trained, self.shared, self.cut]
        parts += [*self.excluded.values(), *self.truncated.values()]
        return min(parts) >= 0 and self.sampled == sum(parts)

    def _take(self, other: "Ledger") -> None:
        self.sampled += other.sampled
        self.trained += other.trained
        self.shared += other.shared
        self.cut += other.cut
        for reason, tokens in other.excluded.items():
            self.exclude(reason, tokens)
        for reason, tokens in other.truncated.items():
            self.truncate(reason, tokens)

    def _counts(self) -> tuple[int, int, int, int, dict[str, int], dict[str, int]]:
        excluded = {reason: n for reason, n in self.excluded.items() if n}
        truncated = {reason: n for reason, n in self.truncated.items() if n}
        return self.sampled, self.trained, self.shared, self.cut, excluded, truncated


def all_excluded(sampled_by_role: dict[str, int], reason: str) -> Ledger:
    """The ledger of an execution of which nothing is trained."""
    ledger = Ledger()
    for role, sampled in sampled_by_role.items():
        ledger.add_role(role, Ledger(sampled=sampled, excluded={reason: sampled}))
    return ledger
