"""Async: a fixed split. The first cells always train, the others always roll out.

Invariant: a cell is switched only to take its side: at Begin, and when it comes back from a loss.
"""

from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import Decision, SchedulePlan
from opengyre.scheduler.state import Phase, State


class StaticSplit:
    """The asynchronous baseline."""

    evens_out = False

    def __init__(self, plan: SchedulePlan) -> None:
        rollout = sum(plan.cells[plan.training_cells :]) + plan.standalone_capacity
        if not 1 <= plan.training_cells <= len(plan.cells) or rollout == 0:
            raise UserError(
                "training_cells that leaves cells on both sides",
                f"training_cells = {plan.training_cells} of {len(plan.cells)} cells",
                f"choose between 1 and {len(plan.cells) - 1}",
            )
        self._training_cells = plan.training_cells

    def arrange(self, state: State) -> list[Decision]:
        """Send the cells of the training side there."""
        if state.phase is Phase.DONE:
            return []
        decisions: list[Decision] = []
        while (cell := state.cells.first(CellRole.ROLLOUT)) is not None:
            if cell.index >= self._training_cells:
                break
            decisions.append(state.order_switch(cell, CellRole.TRAINING))
        return decisions

    def at_rest(self, state: State) -> bool:
        """The split is for ever."""
        return True
