"""When which call was on which cell.

Invariant: a call is on at most one cell at a time, and on none that is not in rollout, as far as the
recorded roles tell. A call whose cells were not recorded has no stay.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from opengyre.app.report.lanes import Span
from opengyre.app.simulate.measured import MeasuredCall
from opengyre.core.reasons import CellRole


@dataclass(frozen=True)
class Stay:
    """A call on a cell."""

    cell: int
    began: float
    ended: float


class RolloutTimes:
    """When each cell served."""

    def __init__(self, spans: Sequence[Span]) -> None:
        served: defaultdict[int, list[Span]] = defaultdict(list)
        for span in sorted(spans, key=attrgetter("start")):
            if span.role is CellRole.ROLLOUT:
                served[span.cell].append(span)
        self._served = dict(served)
        self._starts = {cell: [span.start for span in mine] for cell, mine in served.items()}

    def covers(self, cell: int, began: float, ended: float) -> bool:
        """Whether the cell served all the time between."""
        span = self._at(cell, began)
        return span is not None and span.end >= ended

    def stays(self, call: MeasuredCall) -> Iterator[Stay]:
        """Of a call that says which cells it was given to: it left a cell when that left rollout,
        and waited where the next one did not serve yet."""
        since, last = call.began, len(call.cells) - 1
        for place, cell in enumerate(call.cells):
            came = min(call.ended, self._serves_from(cell, since))
            left = call.ended if place == last else min(call.ended, self._serves_until(cell, came))
            if left > came:
                yield Stay(cell, came, left)
            since = max(came, left)

    def _at(self, cell: int, at: float) -> Span | None:
        place = bisect_right(self._starts.get(cell, []), at) - 1
        if place < 0:
            return None
        span = self._served[cell][place]
        return span if at < span.end else None

    def _serves_from(self, cell: int, at: float) -> float:
        """At once, or when it comes back."""
        if self._at(cell, at) is not None:
            return at
        starts = self._starts.get(cell, [])
        place = bisect_right(starts, at)
        return starts[place] if place < len(starts) else at

    def _serves_until(self, cell: int, at: float) -> float:
        span = self._at(cell, at)
        return span.end if span is not None else at
