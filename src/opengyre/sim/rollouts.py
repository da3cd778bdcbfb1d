"""Executions: calls and tools in turn, from their place in the queue to their end.

Invariant: an execution that started ends exactly once. While it lives it has a place on a cell, or
waits for one among the homeless, whose cell left while no other had room.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from opengyre.sim.cells import SimCell
from opengyre.sim.execution import CACHED, CONTEXT, Execution
from opengyre.sim.fleet import Fleet
from opengyre.sim.kernel import Kernel
from opengyre.sim.limits import Limits
from opengyre.sim.placement import Placement
from opengyre.sim.program import Programs
from opengyre.sim.serving import Serving
from opengyre.sim.tally import Tally
from opengyre.sim.workload import Machine, Workload

Told = Callable[[Execution], None]


class Rollouts:
    """The queue before the cells, and everything that lives in them."""

    def __init__(  # noqa: PLR0913 — the room's wiring, in one place
        self,
        kernel: Kernel,
        workload: Workload,
        machine: Machine,
        capacities: Sequence[int],
        tally: Tally,
        started: Told,
        ended: Told,
        *,
        evens_out: bool = False,
    ) -> None:
        """evens_out: whether executions leave a crowded cell between two calls."""
        self._kernel, self._workload, self._machine = kernel, workload, machine
        self._started, self._ended = started, ended
        self.fleet = Fleet(machine)
        self.cells = [
            SimCell(index, capacity, kernel, self.fleet, self._answered)
            for index, capacity in enumerate(capacities)
        ]
        self._placement = Placement(self.cells, evens_out=evens_out)
        self._evens_out = evens_out
        self.programs = Programs(workload)
        self._serving = Serving(kernel, machine, tally)
        self._limits = Limits(kernel, workload.limit_s, self._limit)
        self._queue: deque[Execution] = deque()
        self._homeless: OrderedDict[Execution, None] = OrderedDict()
        self._goes_on = self._next
        """Kept, since each event would else make one."""
        self.live = 0

    # -- executions ----------------------------------------------------------------------------

    def order(self, execution: Execution) -> None:
        """Queue one; call fill afterwards."""
        self._queue.append(execution)

    def fill(self) -> None:
        """Start what there is room for. In a pause nothing: cells that come back one after another would
        each be filled before the next."""
        while self._queue and not self._serving.paused and self.live < self._placement.room:
            cell = self._placement.lightest()
            if cell is None:
                return
            self._start(self._queue.popleft(), cell)

    def _start(self, execution: Execution, cell: SimCell) -> None:
        self.live += 1
        execution.started_at = self._kernel.now
        wait = self.programs.begin(execution)
        self._settle_in(execution, cell)
        self._limits.watch(execution)
        self._started(execution)
        if wait:
            self._kernel.after(wait, self._goes_on, execution)
        else:
            self._next(execution)

    def _next(self, execution: Execution) -> None:
        """The next call, or the end of the program."""
        if execution.ended:
            return
        if execution.calls_left:
            self._call(execution)
        else:
            self._end(execution)

    def _call(self, execution: Execution) -> None:
        answer = self.programs.answer_tokens(execution)
        cell = execution.cell
        if cell is None or self._serving.paused:
            self._serving.hold(execution, answer, warm=False)
        else:
            if self._evens_out:
                cell = self._evened_out(execution, cell)
            self._serving.serve(execution, cell, answer)
        execution.row[CONTEXT] += answer

    def _answered(self, execution: Execution) -> None:
        row = execution.row
        row[CACHED] = row[CONTEXT]
        execution.calls_left -= 1
        wait = self.programs.wait_after_answer(execution)
        if wait or execution.calls_left:
            self._kernel.after(wait, self._goes_on, execution)
        else:
            self._end(execution)

    def _limit(self, execution: Execution) -> None:
        """The harness's clock rang, perhaps too early: it may stand still while calls are held."""
        if execution.ended:
            return
        load = self._workload
        spared = 0.0 if load.limit_counts_pauses else self._serving.held_s(execution)
        left = execution.started_at + load.limit_s + spared - self._kernel.now
        if left > 0:
            self._kernel.after(left, self._limit, execution)
        else:
            execution.truncated = True
            self._end(execution)

    def _end(self, execution: Execution) -> None:
        if execution.served and execution.cell is not None:
            execution.cell.take(execution)
        execution.needs = None
        execution.ended = True
        self._limits.forget(execution)
        if execution.cell is not None:
            self._move_out(execution)
        else:
            del self._homeless[execution]
        self.live -= 1
        self._rehome()
        self._ended(execution)
        self.fill()

    def _evened_out(self, execution: Execution, cell: SimCell) -> SimCell:
        """The cell of the next call: another one, without a KV cache there, if its own is crowded."""
        other = self._placement.instead_of(cell)
        if other is None:
            return cell
        self._move_out(execution)
        self._settle_in(execution, other)
        execution.row[CACHED] = 0.0
        return other

    # -- places --------------------------------------------------------------------------------

    def _settle_in(self, execution: Execution, cell: SimCell) -> None:
        execution.cell = cell
        execution.cache = cell.cache
        self._placement.add(cell, execution)

    def _move_out(self, execution: Execution) -> None:
        cell = execution.cell
        assert cell is not None
        execution.cell = None
        self._placement.remove(cell, execution)

    def _settle_elsewhere(self, execution: Execution) -> None:
        """Find an evicted execution a new cell, or let it wait for one."""
        target = None if self._serving.paused else self._placement.for_moved()
        if target is None:
            self._homeless[execution] = None
            execution.warm = False  # nobody keeps what has nowhere to go
            return
        self._settle_in(execution, target)
        if execution.needs is not None:
            self._serving.go_on_elsewhere(execution)

    def _rehome(self) -> None:
        while self._homeless and not self._serving.paused:
            cell = self._placement.for_moved()
            if cell is None:
                return
            execution, _ = self._homeless.popitem(last=False)
            self._settle_in(execution, cell)
            if execution.needs is not None:
                self._serving.go_on(execution)

    # -- cells -----------------------------------------------------------------------------------

    def opens(self, cell: SimCell) -> None:
        """The cell serves from now on."""
        cell.cache += 1
        self._placement.open(cell)
        self._rehome()
        self.fill()

    def closes(self, cell: SimCell, *, lost: bool = False) -> None:
        """The cell serves no more: its calls go on elsewhere. lost: nothing of it can be moved."""
        self._placement.close(cell)
        keeps_kv = self._machine.moves_kv and not lost
        self._serving.evict(cell, keeps_kv=keeps_kv)
        for execution in list(cell.residents):
            execution.move += 1
            execution.row[CACHED] = 0.0
            execution.warm = execution.warm and keeps_kv
            self._move_out(execution)
            self._settle_elsewhere(execution)
        cell.cache += 1

    def pause(self) -> None:
        """Hold every call; tools go on."""
        self._serving.paused = True
        for cell in self.cells:
            if self._placement.serves(cell):
                self._serving.evict(cell, keeps_kv=True)

    def resume(self) -> None:
        """Let all calls go on."""
        self._serving.paused = False
        for cell in self.cells:
            if self._placement.serves(cell):
                for execution in cell.residents:
                    if execution.needs is not None:
                        self._serving.go_on(execution)
        self._rehome()
        self.fill()

    def published(self) -> None:
        """A new version is everywhere."""
        if self._machine.publish_drops_prefixes:
            for cell in self.cells:
                self._serving.drop_prefixes(cell)
