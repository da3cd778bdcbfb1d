"""Cells and their roles.

Invariant: a cell is SWITCHING exactly while a switch that was ordered is not done, and only then
does its target differ from its role. A lost cell forgets its switch. What is asked at every event
is kept up to date, so that its cost does not grow with the number of cells.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CORE, SwitchCell


@dataclass
class Cell:
    """One cell as the scheduler knows it. Changed by Cells alone."""

    index: int
    capacity: int
    role: CellRole = CellRole.ROLLOUT
    target: CellRole = CellRole.ROLLOUT
    """Where a switch under way leads; else the role."""
    burst: int = -1
    """Index of the burst for which it was last told to train."""

    @property
    def live(self) -> bool:
        """Whether its process is there."""
        return self.role is not CellRole.LOST


class Cells:
    """All cells, in switching order."""

    def __init__(self, capacities: tuple[int, ...], standalone_capacity: int) -> None:
        self._cells = [Cell(index, capacity) for index, capacity in enumerate(capacities)]
        self._by_role: dict[CellRole, list[int]] = {role: [] for role in CellRole}
        """Ascending indices."""
        self._by_role[CellRole.ROLLOUT] = list(range(len(capacities)))
        self._newest_burst = -1
        self._of_newest_burst = 0
        """Training cells that were told to train in it."""
        self.standalone_capacity = standalone_capacity
        self.rollout_capacity = standalone_capacity + sum(capacities)
        """C_R: executions that can be served now."""

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._cells)

    def __getitem__(self, index: int) -> Cell:
        return self._cells[index]

    @property
    def core(self) -> Cell:
        """The first in the order."""
        return self._cells[CORE]

    @property
    def capacity_beside_core(self) -> int:
        """Executions that can be served once every satellite has returned to rollout."""
        satellites = (cell.capacity for cell in self._cells[1:] if cell.live)
        return self.standalone_capacity + sum(satellites)

    def count(self, role: CellRole) -> int:
        """How many cells have that role."""
        return len(self._by_role[role])

    def first(self, role: CellRole) -> Cell | None:
        """The first cell of that role in the order."""
        indices = self._by_role[role]
        return self._cells[indices[0]] if indices else None

    def last(self, role: CellRole) -> Cell | None:
        """The last cell of that role in the order."""
        indices = self._by_role[role]
        return self._cells[indices[-1]] if indices else None

    def having(self, role: CellRole) -> list[Cell]:
        """The cells of that role, in order."""
        return [self._cells[index] for index in self._by_role[role]]

    def told_before(self, burst: int) -> list[Cell]:
        """The training cells that were told to train in an earlier burst."""
        of_it = self._of_newest_burst if burst == self._newest_burst else 0
        if self.count(CellRole.TRAINING) == of_it:
            return []
        return [cell for cell in self.having(CellRole.TRAINING) if cell.burst != burst]

    def switch(self, cell: Cell, to: CellRole, *, burst: int) -> SwitchCell:
        """Order a switch of a settled, live cell."""
        assert {cell.role, to} == {CellRole.ROLLOUT, CellRole.TRAINING}, (cell, to)
        self._become(cell, CellRole.SWITCHING)
        cell.target = to
        if to is CellRole.TRAINING:
            cell.burst = burst
        return SwitchCell(cell.index, to)

    def keep(self, cell: Cell, burst: int) -> None:
        """Let a training cell go on in a later burst."""
        assert cell.role is CellRole.TRAINING, cell
        self._count_training(cell, -1)
        cell.burst = burst
        self._count_training(cell, +1)

    def switched(self, index: int, role: CellRole) -> None:
        """A switch is done. One that a loss has overtaken is nothing."""
        cell = self._cells[index]
        if cell.role is CellRole.SWITCHING and cell.target is role:
            self._become(cell, role)

    def lose(self, index: int) -> bool:
        """Take a cell out; False when it was out already."""
        was_live = self._cells[index].live
        if was_live:
            self._become(self._cells[index], CellRole.LOST)
        return was_live

    def give_back(self, index: int) -> None:
        """A lost cell is there again, in rollout."""
        assert not self._cells[index].live, self._cells[index]
        self._become(self._cells[index], CellRole.ROLLOUT)

    def _become(self, cell: Cell, role: CellRole) -> None:
        old = self._by_role[cell.role]
        del old[bisect_left(old, cell.index)]
        insort(self._by_role[role], cell.index)
        serves = (role is CellRole.ROLLOUT) - (cell.role is CellRole.ROLLOUT)
        self.rollout_capacity += serves * cell.capacity
        if cell.role is CellRole.TRAINING:
            self._count_training(cell, -1)
        cell.role = cell.target = role
        if role is CellRole.TRAINING:
            self._count_training(cell, +1)

    def _count_training(self, cell: Cell, change: int) -> None:
        if cell.burst > self._newest_burst:
            self._newest_burst, self._of_newest_burst = cell.burst, 0
        if cell.burst == self._newest_burst:
            self._of_newest_burst += change

    def check(self) -> None:
        """Raise AssertionError when the invariant is broken."""
        for cell in self:
            if cell.role is CellRole.SWITCHING:
                assert cell.target in {CellRole.ROLLOUT, CellRole.TRAINING}, cell
            else:
                assert cell.target is cell.role, cell
        for role, indices in self._by_role.items():
            assert indices == [cell.index for cell in self if cell.role is role], role
        serving = sum(cell.capacity for cell in self.having(CellRole.ROLLOUT))
        assert self.rollout_capacity == self.standalone_capacity + serving
        newest = [c for c in self.having(CellRole.TRAINING) if c.burst == self._newest_burst]
        assert len(newest) == self._of_newest_burst, newest
