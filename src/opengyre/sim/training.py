"""Groups into optimiser steps: micro-steps in one queue, whichever training cell is free first.

Invariant: a step ends when every micro-step of it was computed once and the core is in training.
Under a barrier (the baselines without streaming) nothing is computed before a step is closed and
every cell that was told to train is there; then its executions are dealt out to them in equal
numbers, and the longest share decides.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opengyre.scheduler.base import CORE
from opengyre.sim.kernel import Kernel
from opengyre.sim.tally import Tally
from opengyre.sim.workload import Machine


@dataclass(slots=True)
class _Worker:
    """A cell in training."""

    busy: float = 0.0
    """Tokens of the micro-step in hand; 0 = idle."""
    number: int = 0
    """Of the micro-step in hand: a lost cell's never ends."""
    share: deque[float] | None = None
    """Under a barrier: what is this cell's to do."""
    leaving: Callable[[], object] | None = None


class Training:
    """The step under way and the cells that work on it."""

    def __init__(
        self,
        kernel: Kernel,
        machine: Machine,
        tally: Tally,
        stepped: Callable[[int, float], None],
        told_to_train: Callable[[], int],
        *,
        streaming: bool,
    ) -> None:
        self._kernel, self._machine, self._tally = kernel, machine, tally
        self._stepped = stepped
        self._told_to_train = told_to_train
        """How many cells train or are on their way."""
        self._streaming = streaming
        self._workers: dict[int, _Worker] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Idle workers, the longest idle first. None of them has anything to do."""
        self._queue: deque[float] = deque()
        self._batch: list[float] = []
        """Under a barrier: tokens of the executions of the step that is not closed yet."""
        self._open = 0
        """Micro-steps of the step that are not computed."""
        self._closed: int | None = None
        self._stepping = False
        self._started = 0
        self.busy_s = 0.0
        self._told_s = 0.0
        """Of it, what the steps that are done took."""

    def admit(self, executions: Sequence[float]) -> None:
        """Tokens of a group's executions join the step under way."""
        self._tally.trained_tokens += sum(executions)
        if not self._streaming:
            self._batch += executions
            return
        pieces = self._pieces(sum(executions))
        self._open += len(pieces)
        self._queue += pieces
        self._hand_out()

    def close(self, step: int) -> None:
        """The step has all its groups."""
        self._closed = step
        self._deal()
        self._hand_out()
        self._maybe_step()

    def join(self, cell: int) -> None:
        """A cell is in training."""
        self._workers[cell] = _Worker()
        self._idle[cell] = None
        self._deal()
        self._hand_out()
        self._maybe_step()

    def leave(self, cell: int, left: Callable[[], object]) -> None:
        """A cell goes when it has no micro-step in hand; left is told."""
        worker = self._workers[cell]
        self._take_back(worker)
        if worker.busy:
            worker.leaving = left
            return
        self._forget(cell)
        left()

    def lose(self, cell: int) -> None:
        """A cell is gone with the micro-step that it had in hand; what it delivered stays."""
        worker = self._workers.get(cell)
        if worker is None:
            return
        self._take_back(worker)
        if worker.busy:
            self._queue.appendleft(worker.busy)
            worker.number = -1
        self._forget(cell)
        self._deal()
        self._hand_out()

    def _pieces(self, tokens: float) -> list[float]:
        if tokens <= 0:
            return []
        most = self._machine.micro_step_tokens
        count = max(1, -int(-tokens // most))
        return [tokens / count] * count

    def _deal(self) -> None:
        """Under a barrier, once the step is closed and all are there."""
        if self._closed is None or not self._batch or not self._workers:
            return
        if len(self._workers) < self._told_to_train():
            return
        cells = sorted(self._workers)
        for place, tokens in enumerate(self._batch):
            pieces = self._pieces(tokens)
            worker = self._workers[cells[place % len(cells)]]
            worker.share = worker.share or deque()
            worker.share += pieces
            self._open += len(pieces)
        self._batch = []
        for cell in list(self._idle):
            self._offer(cell)

    def _take_back(self, worker: _Worker) -> None:
        self._queue += worker.share or ()
        worker.share = None

    def _forget(self, cell: int) -> None:
        del self._workers[cell]
        self._idle.pop(cell, None)

    def _hand_out(self) -> None:
        """Give idle workers what the queue has."""
        while self._queue and self._idle:
            self._offer(next(iter(self._idle)))

    def _offer(self, cell: int) -> None:
        worker = self._workers[cell]
        source = worker.share or self._queue
        if source:
            del self._idle[cell]
            self._compute(cell, worker, source.popleft())

    def _compute(self, cell: int, worker: _Worker, tokens: float) -> None:
        self._started += 1
        worker.busy, worker.number = tokens, self._started
        seconds = tokens / self._machine.train_tokens_s
        self._kernel.after(seconds, self._computed, (cell, worker, self._started, seconds))

    def _computed(self, micro_step: tuple[int, _Worker, int, float]) -> None:
        cell, worker, number, seconds = micro_step
        if worker.number != number:
            return
        self.busy_s += seconds
        worker.busy = 0.0
        self._open -= 1
        if worker.leaving is not None:
            self._forget(cell)
            worker.leaving()
        else:
            self._idle[cell] = None
            self._offer(cell)
        self._maybe_step()

    def _maybe_step(self) -> None:
        step = self._closed
        if step is None or self._open or self._batch:
            return
        if not self._stepping and CORE in self._workers:
            self._stepping = True
            self._kernel.after(self._machine.step_s, self._step, step)

    def _step(self, step: int) -> None:
        self._stepping = False
        if CORE not in self._workers:
            self._maybe_step()  # the core was lost: the step is taken again once it is back
            return
        self._closed = None
        computed_s, self._told_s = self.busy_s - self._told_s, self.busy_s
        self._stepped(step, computed_s)
