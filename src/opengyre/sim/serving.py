"""Calls on cells: served, held, moved with their KV cache or without it.

Invariant: a call that lost its cell goes on elsewhere with the tokens that it still needs, or is held
until a cell serves.
"""

from opengyre.sim.cells import SimCell
from opengyre.sim.execution import CACHED, CONTEXT, Execution
from opengyre.sim.kernel import Kernel
from opengyre.sim.tally import Tally
from opengyre.sim.workload import Machine


class Serving:
    """Gives calls to cells, and counts what that costs."""

    def __init__(self, kernel: Kernel, machine: Machine, tally: Tally) -> None:
        self._kernel, self._machine, self._tally = kernel, machine, tally
        self._prefill_weight = machine.prefill_weight
        self.paused = False
        """Then calls are held wherever they are."""

    def serve(self, execution: Execution, cell: SimCell, answer: float) -> None:
        """A new call: what of its prompt is not in the cell's cache, then its answer."""
        warm = execution.row[CACHED] if execution.cache == cell.cache else 0.0
        execution.cache = cell.cache
        cell.begin(execution, answer + self.prompt_cost(execution, warm))

    def hold(self, execution: Execution, tokens: float, *, warm: bool) -> None:
        """Let a call wait that no cell serves. warm: its KV cache is, or will be, where it goes on."""
        execution.needs = tokens
        execution.warm = warm
        execution.held_since = self._kernel.now
        self._tally.held_calls += 1

    def go_on(self, execution: Execution) -> None:
        """Serve a held call on its cell."""
        cell, tokens = execution.cell, execution.needs
        assert cell is not None
        assert tokens is not None
        execution.needs = None
        seconds = self._kernel.now - execution.held_since
        execution.held_s += seconds
        self._tally.held_s += seconds
        cost = 0.0 if execution.warm else self.prompt_cost(execution, 0.0)
        execution.cache = cell.cache
        cell.begin(execution, tokens + cost)

    def go_on_elsewhere(self, execution: Execution) -> None:
        """Serve a held call on the cell that it moved to, once what it needs is there."""
        if execution.warm:
            seconds = execution.row[CONTEXT] / self._machine.kv_move_tokens_s
            self._kernel.after(seconds, self._kv_arrived, (execution, execution.move))
        else:
            self._moved(execution)

    def _kv_arrived(self, moved: tuple[Execution, int]) -> None:
        execution, move = moved
        if execution.needs is not None and execution.move == move:
            self._moved(execution)

    def _moved(self, execution: Execution) -> None:
        """Counted here, once: a call may be moved again while its KV cache is on its way."""
        self._tally.moved_with_kv += execution.warm
        self._tally.recomputed += not execution.warm
        if not self.paused:
            self.go_on(execution)

    def evict(self, cell: SimCell, *, keeps_kv: bool) -> None:
        """Hold every call of a cell."""
        for execution, left in cell.take_all().items():
            self.hold(execution, left, warm=keeps_kv)

    def drop_prefixes(self, cell: SimCell) -> None:
        """Cached prefixes are of no use any more, nor are those on their way: calls compute their
        context again."""
        cell.cache += 1
        for execution in cell.residents:
            execution.warm = False
        cell.lengthen(self._again)

    def _again(self, execution: Execution) -> float:
        cell = execution.cell
        assert cell is not None
        execution.cache = cell.cache
        return self.prompt_cost(execution, 0.0)

    def prompt_cost(self, execution: Execution, warm: float) -> float:
        """Decoded tokens that computing its context takes, but for so many tokens of it."""
        fresh = execution.row[CONTEXT] - warm
        if fresh <= 0.0:
            return 0.0
        self._tally.prefilled_tokens += fresh
        return fresh * self._prefill_weight

    def held_s(self, execution: Execution) -> float:
        """How long its calls were held so far."""
        now = self._kernel.now - execution.held_since if execution.needs is not None else 0.0
        return execution.held_s + now
