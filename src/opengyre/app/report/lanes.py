"""When each cell had which role, from the recorded role changes."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from opengyre.core.reasons import CellRole
from opengyre.store.rows import EventRow


@dataclass(frozen=True)
class Span:
    """A cell had a role from start to end, in seconds of the run's clock."""

    cell: int
    role: CellRole
    start: float
    end: float


def lanes(events: Sequence[EventRow], end: float) -> list[Span]:
    """Spans of all cells, without gaps; a cell rolls out until its first change."""
    by_cell: defaultdict[int, list[EventRow]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at):
        by_cell[int(event.fields["cell"])].append(event)
    return [span for cell in sorted(by_cell) for span in _lane(cell, by_cell[cell], end)]


def _lane(cell: int, events: Sequence[EventRow], end: float) -> list[Span]:
    spans: list[Span] = []
    role, since = CellRole.ROLLOUT, 0.0
    for event in events:
        if event.at > since:
            spans.append(Span(cell, role, since, event.at))
        role, since = CellRole(str(event.fields["role"])), event.at
    if end > since:
        spans.append(Span(cell, role, since, end))
    return spans


def busy_share(spans: Sequence[Span], role: CellRole) -> float:
    """Share of all cells' time spent in a role."""
    total = sum(span.end - span.start for span in spans)
    return sum(span.end - span.start for span in spans if span.role is role) / total if total else 0
