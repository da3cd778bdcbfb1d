"""Policies that were tried against elastic; `opengyre simulate policies` says how they fare.

Invariant: each only holds back a satellite that elastic would let join, sends satellites home earlier,
or lets executions change cells. So whatever elastic keeps they keep, and as the core always joins,
every run ends.
"""

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CORE, Decision
from opengyre.scheduler.cells import Cell
from opengyre.scheduler.elastic import Elastic
from opengyre.scheduler.forecast import EarlyReturn, Forecast
from opengyre.scheduler.state import Phase, State


class Patient(EarlyReturn):
    """Satellites join when live work fits into a share of what stays, so that it runs faster."""

    def __init__(self, share: float) -> None:
        self._share = share

    def wants(self, state: State, cell: Cell) -> bool:
        """Whether there is room to spare."""
        room = state.rollout_capacity - cell.capacity
        return cell.index == CORE or state.waterlevel <= self._share * room


class ReadyFirst(Elastic):
    """A satellite joins for each group that is ready, and all once the burst has its groups."""

    def wants(self, state: State, cell: Cell) -> bool:
        """Whether another cell has something to train on."""
        enough = len(state.groups.chosen) > state.cells.count(CellRole.TRAINING)
        return cell.index == CORE or state.burst_is_full or enough


class StayOn(Elastic):
    """At a burst's end, satellites with ready groups go on while the rest covers live work."""

    def send_back(self, state: State) -> list[Decision]:
        """The last in the order first; none stays without its core."""
        if not self.core_stays(state):
            return super().send_back(state)
        served, returns = state.rollout_capacity, list[Decision]()
        for cell in reversed(state.cells.told_before(state.burst.index)):
            if cell.index == CORE or state.waterlevel <= served:
                state.keep_in_training(cell)
            else:
                served += cell.capacity
                returns.append(state.order_switch(cell, CellRole.ROLLOUT))
        return returns


class IdleReturn(Elastic):
    """Satellites go home in mid-burst whenever nothing is left to train on."""

    def send_back(self, state: State) -> list[Decision]:
        """Idle ones too."""
        returns = super().send_back(state)
        if state.phase is not Phase.OPEN or state.streaming:
            return returns
        training = state.cells.having(CellRole.TRAINING)
        idle = [cell for cell in training if cell.index != CORE]
        return [*returns, *(state.order_switch(cell, CellRole.ROLLOUT) for cell in idle)]


class Even(Elastic):
    """Executions leave a crowded cell between two calls."""

    evens_out = True


class Settled(Forecast):
    """Executions stay where they are."""

    evens_out = False
