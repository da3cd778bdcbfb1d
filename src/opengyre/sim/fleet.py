"""What the cells of a world have in common: how fast a call is beside others, and sums over all cells.

Invariant: kept once, not in each cell, since what is touched at every event should be small.
"""

from opengyre.sim.workload import Machine


class Fleet:
    """Told by each cell what it does."""

    __slots__ = ("busy_s", "calls_s", "rates")

    def __init__(self, machine: Machine) -> None:
        self.rates = Rates(machine)
        self.busy_s = 0.0
        """Over all cells: time with at least one call."""
        self.calls_s = 0.0
        """The same, times their number."""


class Rates(dict[int, float]):
    """Tokens a second of each of so many calls on one cell, worked out once for each number."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine

    def __missing__(self, calls: int) -> float:
        self[calls] = rate = self._machine.decode_tokens_s(calls)
        return rate
