"""Cells, whatever is ordered and lost, against books that are searched each time."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import SwitchCell
from opengyre.scheduler.cells import Cell, Cells

ROLLOUT, TRAINING, SWITCHING, LOST = (
    CellRole.ROLLOUT,
    CellRole.TRAINING,
    CellRole.SWITCHING,
    CellRole.LOST,
)


@dataclass
class Plain:
    """What is known of one cell."""

    role: CellRole = ROLLOUT
    target: CellRole = ROLLOUT
    burst: int = -1


class Books:
    """Does each thing to the cells and writes it down."""

    def __init__(self, capacities: list[int], standalone_capacity: int) -> None:
        self.cells = Cells(tuple(capacities), standalone_capacity)
        self._capacities, self._pool = capacities, standalone_capacity
        self._plain = [Plain() for _ in capacities]
        self._burst = 0

    def next_burst(self, _index: int) -> None:
        self._burst += 1

    def order(self, index: int) -> None:
        plain, cell = self._plain[index], self.cells[index]
        if plain.role in {ROLLOUT, TRAINING}:
            plain.target = TRAINING if plain.role is ROLLOUT else ROLLOUT
            plain.role = SWITCHING
            if plain.target is TRAINING:
                plain.burst = self._burst
            ordered = self.cells.switch(cell, plain.target, burst=self._burst)
            assert ordered == SwitchCell(index, plain.target)

    def report_training(self, index: int) -> None:
        self._report(index, TRAINING)

    def report_rollout(self, index: int) -> None:
        self._report(index, ROLLOUT)

    def _report(self, index: int, role: CellRole) -> None:
        """Of a switch that is under way, or of one that a loss has overtaken: then it is nothing."""
        plain = self._plain[index]
        if (plain.role, plain.target) == (SWITCHING, role):
            plain.role = role
        self.cells.switched(index, role)

    def keep(self, index: int) -> None:
        if self._plain[index].role is TRAINING:
            self._plain[index].burst = self._burst
            self.cells.keep(self.cells[index], self._burst)

    def lose(self, index: int) -> None:
        plain = self._plain[index]
        assert self.cells.lose(index) is (plain.role is not LOST)
        plain.role = plain.target = LOST

    def give_back(self, index: int) -> None:
        plain = self._plain[index]
        if plain.role is LOST:
            plain.role = plain.target = ROLLOUT
            self.cells.give_back(index)

    def check(self) -> None:
        self.cells.check()
        serving = self._capacity(0, {ROLLOUT})
        assert self.cells.rollout_capacity == self._pool + serving
        live = self._capacity(1, {ROLLOUT, TRAINING, SWITCHING})
        assert self.cells.capacity_beside_core == self._pool + live
        for role in CellRole:
            having = [cell for cell in self.cells if self._plain[cell.index].role is role]
            assert self.cells.having(role) == having
            assert self.cells.count(role) == len(having)
            assert self.cells.first(role) == (having[0] if having else None)
            assert self.cells.last(role) == (having[-1] if having else None)
        assert self.cells.told_before(self._burst) == self._told_before()

    def _capacity(self, first: int, roles: set[CellRole]) -> int:
        beside = zip(self._plain[first:], self._capacities[first:], strict=True)
        return sum(capacity for plain, capacity in beside if plain.role in roles)

    def _told_before(self) -> list[Cell]:
        told = [(plain.role, plain.burst < self._burst) for plain in self._plain]
        return [cell for cell in self.cells if told[cell.index] == (TRAINING, True)]


HAPPENINGS: list[Callable[[Books, int], None]] = [
    Books.next_burst,
    Books.order,
    Books.order,
    Books.report_training,
    Books.report_training,
    Books.report_rollout,
    Books.keep,
    Books.lose,
    Books.give_back,
]


@given(
    capacities=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    standalone_capacity=st.integers(0, 2),
    happenings=st.lists(
        st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 5)), min_size=10, max_size=60
    ),
)
@example(
    capacities=[1, 1],
    standalone_capacity=0,
    happenings=[
        (Books.order, 0),
        (Books.report_training, 0),
        (Books.next_burst, 0),
        (Books.order, 1),
        (Books.report_training, 1),
        (Books.keep, 0),
        (Books.keep, 0),
        (Books.next_burst, 0),
        (Books.keep, 1),
    ],
)
def test_what_is_kept_up_to_date_is_what_searching_all_cells_finds(
    capacities: list[int],
    standalone_capacity: int,
    happenings: list[tuple[Callable[[Books, int], None], int]],
) -> None:
    books = Books(capacities, standalone_capacity)
    books.check()
    for happens, number in happenings:
        happens(books, number % len(capacities))
        books.check()
