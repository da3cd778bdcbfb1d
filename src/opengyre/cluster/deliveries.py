"""Which micro-steps' gradients are where, so that each one counts exactly once in its step.

A computed micro-step is held by one cell until it is delivered (exported to shared memory) or the
cell is lost; then it is told as undelivered once, and done again.
"""

from dataclasses import dataclass, field


@dataclass
class Deliveries:
    """The book of one step at a time."""

    _held: dict[int, list[str]] = field(default_factory=dict)
    _undelivered: dict[int, list[str]] = field(default_factory=dict)
    _sources: list[str] = field(default_factory=list)
    _exports: int = 0

    def computed(self, cell: int, micro_id: str) -> None:
        """The cell's buffers have this micro-step's gradients."""
        self._held.setdefault(cell, []).append(micro_id)

    def holders(self) -> list[int]:
        """Cells whose buffers have gradients."""
        return sorted(self._held)

    def new_source(self, cell: int) -> str:
        """A fresh name for an export of this cell."""
        self._exports += 1
        return f"gradients-{cell}-{self._exports}"

    def delivered(self, cell: int, source: str) -> None:
        """The cell's gradients are in this shared object, and its buffers are zero."""
        del self._held[cell]
        self._sources.append(source)

    def sources(self) -> list[str]:
        """Shared objects to be added to the core's gradients."""
        return list(self._sources)

    def lost(self, cell: int) -> None:
        """What the cell held is gone; what it delivered is not."""
        if cell in self._held:
            self._undelivered.setdefault(cell, []).extend(self._held.pop(cell))

    def take_undelivered(self, cell: int) -> list[str]:
        """Micro-steps to be done again, each told once."""
        return self._undelivered.pop(cell, [])

    def owing(self) -> int | None:
        """A lost cell whose undelivered micro-steps nobody has taken."""
        return next(iter(self._undelivered), None)

    def stepped(self) -> list[str]:
        """The step is done; returns the shared objects that can be removed."""
        done, self._sources = self._sources, []
        self._held.clear()
        return done
