"""Cells and their roles.

Invariant: a cell is SWITCHING exactly while a switch that was ordered is not done, and only then
does its target differ from its role. A lost cell forgets its switch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CORE, SwitchCell


@dataclass
class Cell:
    """One cell as the scheduler knows it."""

    index: int
    capacity: int
    role: CellRole = CellRole.ROLLOUT
    target: CellRole = CellRole.ROLLOUT
    """Where a switch under way leads; else the role."""
    burst: int = -1
    """Index of the burst for which it was last told to train."""
    since: float = 0.0
    """When it took its role."""

    @property
    def live(self) -> bool:
        """Whether its process is there."""
        return self.role is not CellRole.LOST

    def become(self, role: CellRole, now: float) -> None:
        """Take a settled role."""
        self.role = self.target = role
        self.since = now


class Cells:
    """All cells, in switching order."""

    def __init__(self, capacities: tuple[int, ...], standalone_capacity: int) -> None:
        self._cells = [Cell(index, capacity) for index, capacity in enumerate(capacities)]
        self.standalone_capacity = standalone_capacity

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._cells)

    def __getitem__(self, index: int) -> Cell:
        return self._cells[index]

    @property
    def core(self) -> Cell:
        """The first in the order."""
        return self._cells[CORE]

    @property
    def rollout_capacity(self) -> int:
        """C_R: executions that can be served now."""
        serving = (cell.capacity for cell in self if cell.role is CellRole.ROLLOUT)
        return self.standalone_capacity + sum(serving)

    @property
    def capacity_beside_core(self) -> int:
        """Executions that can be served once every satellite has returned to rollout."""
        satellites = (cell.capacity for cell in self._cells[1:] if cell.live)
        return self.standalone_capacity + sum(satellites)

    def having(self, role: CellRole) -> list[Cell]:
        """The cells of that role, in order."""
        return [cell for cell in self if cell.role is role]

    def switch(self, cell: Cell, to: CellRole, *, burst: int, now: float) -> SwitchCell:
        """Order a switch of a settled, live cell."""
        assert {cell.role, to} == {CellRole.ROLLOUT, CellRole.TRAINING}, (cell, to)
        cell.role, cell.target, cell.since = CellRole.SWITCHING, to, now
        if to is CellRole.TRAINING:
            cell.burst = burst
        return SwitchCell(cell.index, to)

    def switched(self, index: int, role: CellRole, now: float) -> None:
        """A switch is done. One that a loss has overtaken is nothing."""
        cell = self._cells[index]
        if cell.role is CellRole.SWITCHING and cell.target is role:
            cell.become(role, now)

    def lose(self, index: int, now: float) -> bool:
        """Take a cell out; False when it was out already."""
        was_live = self._cells[index].live
        if was_live:
            self._cells[index].become(CellRole.LOST, now)
        return was_live

    def give_back(self, index: int, now: float) -> None:
        """A lost cell is there again, in rollout."""
        assert not self._cells[index].live, self._cells[index]
        self._cells[index].become(CellRole.ROLLOUT, now)

    def check(self) -> None:
        """Raise AssertionError when the invariant is broken."""
        for cell in self:
            if cell.role is CellRole.SWITCHING:
                assert cell.target in {CellRole.ROLLOUT, CellRole.TRAINING}, cell
            else:
                assert cell.target is cell.role, cell
