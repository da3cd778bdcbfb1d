"""Which cell an execution goes to.

Invariant: only a serving cell with room is chosen. New executions go where the fewest are, which
serves them fastest; moved ones to the cell that stays in rollout longest: the standalone pool, then
the latest in the switching order. Where cells are to serve evenly these too go where the fewest are, and
so do those of a crowded cell. All choices cost O(log cells).
"""

import heapq
from collections.abc import Sequence

from opengyre.scheduler.crowd import is_crowded
from opengyre.sim.cells import SimCell
from opengyre.sim.execution import Execution


class Placement:
    """Keeps two heaps of candidates, each in there once; what is out of date is dropped when met."""

    def __init__(self, cells: Sequence[SimCell], *, evens_out: bool = False) -> None:
        self._cells = cells
        self._evens_out = evens_out
        self._serving = [False] * len(cells)
        self._light: list[int] = []
        """residents * cells + place from the end: the fewest first, the latest of these first."""
        self._in_light: set[int] = set()
        self._late: list[int] = []
        """-index."""
        self._in_late: set[int] = set()
        self.room = 0
        """Executions that the serving cells can hold."""

    def serves(self, cell: SimCell) -> bool:
        """Whether executions may be placed there."""
        return self._serving[cell.index]

    def open(self, cell: SimCell) -> None:
        """The cell serves from now on."""
        self._serving[cell.index] = True
        self.room += cell.capacity
        self._offer(cell)

    def close(self, cell: SimCell) -> None:
        """The cell serves no more."""
        self._serving[cell.index] = False
        self.room -= cell.capacity

    def lightest(self) -> SimCell | None:
        """The serving cell with the fewest executions; None when all are full."""
        light, count = self._light, len(self._cells)
        while light:
            residents, place = divmod(light[0], count)
            cell = self._cells[count - 1 - place]
            current = self._serving[cell.index] and len(cell.residents) == residents
            if current and residents < cell.capacity:
                return cell
            self._in_light.discard(heapq.heappop(light))
        return None

    def for_moved(self) -> SimCell | None:
        """Where an execution goes whose cell left; None when all are full."""
        return self.lightest() if self._evens_out else self.latest()

    def instead_of(self, cell: SimCell) -> SimCell | None:
        """Where an execution of this cell had better go on; None: it stays."""
        other = self.lightest()
        if other is None:
            return None
        crowded = is_crowded(len(cell.residents), len(other.residents), cell.capacity)
        return other if crowded else None

    def latest(self) -> SimCell | None:
        """The serving cell with room that is the last to switch; None when all are full."""
        while self._late:
            cell = self._cells[-self._late[0]]
            if self._serving[cell.index] and len(cell.residents) < cell.capacity:
                return cell
            self._in_late.discard(heapq.heappop(self._late))
        return None

    def add(self, cell: SimCell, execution: Execution) -> None:
        """One more lives there."""
        cell.residents[execution] = None
        self._offer(cell)

    def remove(self, cell: SimCell, execution: Execution) -> None:
        """One fewer."""
        del cell.residents[execution]
        self._offer(cell)

    def _offer(self, cell: SimCell) -> None:
        residents = len(cell.residents)
        if not self._serving[cell.index] or residents >= cell.capacity:
            return
        count = len(self._cells)
        key = residents * count + count - 1 - cell.index
        if key not in self._in_light:
            self._in_light.add(key)
            heapq.heappush(self._light, key)
        if -cell.index not in self._in_late:
            self._in_late.add(-cell.index)
            heapq.heappush(self._late, -cell.index)
