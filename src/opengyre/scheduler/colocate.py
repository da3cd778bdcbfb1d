"""Colocate: all cells roll out until a burst's groups are ready, then all cells train.

Invariant: no cell trains unless rollout is paused, and rollout resumes when the last one is back.
"""

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import Decision, PauseRollout, ResumeRollout
from opengyre.scheduler.state import Phase, State


class Colocate:
    """The synchronous baseline. In-flight calls are held while the cells train."""

    evens_out = False

    def arrange(self, state: State) -> list[Decision]:
        """Bring every cell to the side that the burst is on."""
        if state.phase is not Phase.DONE and state.burst_is_full:
            return self._train(state)
        return self._roll_out(state)

    def at_rest(self, state: State) -> bool:
        """Every live cell is back and calls go on."""
        return not state.paused

    def _train(self, state: State) -> list[Decision]:
        decisions: list[Decision] = []
        if not state.paused:
            state.paused = True
            decisions.append(PauseRollout())
        for cell in state.cells.having(CellRole.ROLLOUT):
            decisions.append(state.order_switch(cell, CellRole.TRAINING))
        return decisions

    def _roll_out(self, state: State) -> list[Decision]:
        decisions: list[Decision] = []
        for cell in state.cells.having(CellRole.TRAINING):
            decisions.append(state.order_switch(cell, CellRole.ROLLOUT))
        if state.paused and not state.cells.count(CellRole.SWITCHING):
            state.paused = False
            decisions.append(ResumeRollout())
        return decisions
