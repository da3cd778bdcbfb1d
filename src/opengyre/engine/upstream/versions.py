"""Servers name their weights with any text; records hold whole numbers.

Invariant: one label is one number for as long as the book is kept, and no two labels share one.
"""

from collections.abc import Mapping

FIRST = "default"
"""What SGLang calls the weights that it was started with, and what a server that says nothing has."""


class VersionBook:
    """Numbers by label. A label that is a number is that number."""

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        self.labels: dict[str, int] = dict(known or {FIRST: 0})

    def number(self, label: str) -> int:
        """The label's number; a new one when it was never seen."""
        found = self.labels.get(label)
        if found is None:
            found = self._new(label)
            self.labels[label] = found
        return found

    def _new(self, label: str) -> int:
        taken = set(self.labels.values())
        if label.isascii() and label.isdecimal() and int(label) not in taken:
            return int(label)
        return max(taken, default=-1) + 1
