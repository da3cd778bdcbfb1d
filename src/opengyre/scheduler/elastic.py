"""Elastic: cells move to training one by one as executions end, and all return after the burst.

Invariant: no live execution is paused or dropped; a cell is told to train only when every live cell
before it trains and what stays in rollout can serve all live executions.
"""

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CORE, Decision
from opengyre.scheduler.cells import Cell
from opengyre.scheduler.state import Phase, State


class Elastic:
    """The policy of the design."""

    evens_out: bool = False

    def arrange(self, state: State) -> list[Decision]:
        """Send back the cells of a past burst; then let at most one cell move."""
        returns = self.send_back(state)
        if state.phase is not Phase.OPEN or state.cells.count(CellRole.SWITCHING):
            return returns
        return self._serve_again(state) or self.join_training(state)

    def at_rest(self, state: State) -> bool:
        """Every live cell rolls out, ready for an evaluation."""
        moving = state.cells.count(CellRole.TRAINING) + state.cells.count(CellRole.SWITCHING)
        return not moving

    def send_back(self, state: State) -> list[Decision]:
        """Order the cells of a past burst back to rollout; the core may stay."""
        returns: list[Decision] = []
        for cell in state.cells.told_before(state.burst.index):
            if cell.index == CORE and self.core_stays(state):
                state.keep_in_training(cell)
            else:
                returns.append(state.order_switch(cell, CellRole.ROLLOUT))
        return returns

    def core_stays(self, state: State) -> bool:
        """The next batch is ready, and the others can serve all that is about to be dispatched."""
        served = state.waterlevel <= state.cells.capacity_beside_core
        return state.streaming and state.step_is_full and served

    def _serve_again(self, state: State) -> list[Decision]:
        """Losses left live executions without any cell: the last training cell serves them."""
        last = state.cells.last(CellRole.TRAINING)
        if state.waterlevel == 0 or state.rollout_capacity > 0 or last is None:
            return []
        return [state.order_switch(last, CellRole.ROLLOUT)]

    def join_training(self, state: State) -> list[Decision]:
        """Let the next cell join, if what stays in rollout can serve all live executions."""
        cell = self.next_in_order(state)
        if cell is None or not state.streaming:
            return []
        if state.waterlevel > state.rollout_capacity - cell.capacity:
            return []
        return [state.order_switch(cell, CellRole.TRAINING)] if self.wants(state, cell) else []

    def wants(self, _state: State, _cell: Cell) -> bool:
        """Whether a cell that may join training shall: always, unless a policy that builds on this
        one knows better."""
        return True

    def next_in_order(self, state: State) -> Cell | None:
        """The first cell in rollout; none while the core, whose weights it would pull, is lost."""
        return state.cells.first(CellRole.ROLLOUT) if state.cells.core.live else None
