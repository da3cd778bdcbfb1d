"""Which cell an execution goes to.

Invariant: only a serving cell with room is chosen. New executions go where the fewest are, which
serves them fastest; moved ones to the cell that stays in rollout longest: the standalone pool, then
the latest in the switching order. Both choices cost O(log cells).
"""

import heapq
from collections.abc import Sequence

from opengyre.sim.cells import SimCell


class Placement:
    """Keeps two heaps of candidates; entries that are out of date are dropped when met."""

    def __init__(self, cells: Sequence[SimCell]) -> None:
        self._cells = cells
        self._serving: set[int] = set()
        self._light: list[tuple[int, int]] = []
        """(residents, -index)"""
        self._late: list[int] = []
        """-index; at most one entry a cell."""
        self._in_late: set[int] = set()
        self.room = 0
        """Executions that the serving cells can hold."""

    def serves(self, cell: SimCell) -> bool:
        """Whether executions may be placed there."""
        return cell.index in self._serving

    def open(self, cell: SimCell) -> None:
        """The cell serves from now on."""
        self._serving.add(cell.index)
        self.room += cell.capacity
        self._offer(cell)

    def close(self, cell: SimCell) -> None:
        """The cell serves no more."""
        self._serving.discard(cell.index)
        self.room -= cell.capacity

    def lightest(self) -> SimCell | None:
        """The serving cell with the fewest executions; None when all are full."""
        while self._light:
            residents, negative = self._light[0]
            cell = self._cells[-negative]
            current = self.serves(cell) and cell.residents == residents
            if current and residents < cell.capacity:
                return cell
            heapq.heappop(self._light)
        return None

    def latest(self) -> SimCell | None:
        """The serving cell with room that is the last to switch; None when all are full."""
        while self._late:
            cell = self._cells[-self._late[0]]
            if self.serves(cell) and cell.residents < cell.capacity:
                return cell
            self._in_late.discard(cell.index)
            heapq.heappop(self._late)
        return None

    def add(self, cell: SimCell) -> None:
        """One execution more lives there."""
        cell.residents += 1
        self._offer(cell)

    def remove(self, cell: SimCell) -> None:
        """One fewer."""
        cell.residents -= 1
        self._offer(cell)

    def _offer(self, cell: SimCell) -> None:
        if not self.serves(cell) or cell.residents >= cell.capacity:
            return
        heapq.heappush(self._light, (cell.residents, -cell.index))
        if cell.index not in self._in_late:
            self._in_late.add(cell.index)
            heapq.heappush(self._late, -cell.index)
