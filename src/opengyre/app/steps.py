"""Streams groups into optimiser steps: one queue of micro-steps, whichever training cell is free first.

Invariant: every micro-step of a step is counted in exactly one delivered gradient. What a lost cell
had not delivered goes back to the queue.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from opengyre.cluster.base import CORE, CellLostError, Cluster
from opengyre.config.run import RunConfig
from opengyre.core.protocols import Clock, IdSource
from opengyre.core.records import MicroStep
from opengyre.learner.stats import MicroStats, StepStats
from opengyre.tree.pack import micro_steps
from opengyre.tree.weigh import GroupSamples


@dataclass
class OpenStep:
    """The step that is being filled."""

    number: int
    """From 0."""
    micros: dict[str, MicroStep] = field(default_factory=dict)
    done: dict[str, tuple[int, MicroStats]] = field(default_factory=dict)
    """By micro-step: the cell that computed it and what it measured."""
    executions: int = 0
    computed_s: float = 0.0
    """Seconds that micro-steps took, of all cells."""
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    whole: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while every known micro-step is done."""


@dataclass
class Worker:
    """Feeds one training cell."""

    task: asyncio.Task[None]
    busy: bool = False
    """A micro-step is in hand: it must not be cancelled, its gradient would count unseen."""
    leaving: bool = False


@dataclass(frozen=True)
class StepResult:
    """What a finished step measured."""

    step: int
    executions: int
    stats: StepStats | None
    """None when no execution had a gradient to give."""
    micros: list[MicroStats]
    seconds: float
    computed_s: float
    """Cell-seconds that its micro-steps took, from when a cell was told to when it had done it."""
    cells: list[int]


class StepRunner:
    """Feeds the training cells."""

    def __init__(self, config: RunConfig, cluster: Cluster, clock: Clock, ids: IdSource) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._ids = ids
        self._queue: asyncio.Queue[MicroStep] = asyncio.Queue()
        self._workers: dict[int, Worker] = {}
        self._core_trains = asyncio.Event()
        self._open: OpenStep | None = None
        self._stepping = False
        """The cluster gathers gradients: what a lost cell owes must stay owed, or they would be
        taken for whole without it."""

    def admit(self, samples: GroupSamples, step: int) -> None:
        """Stream a group into a step; its micro-steps may be taken at once."""
        open_step = self._step(step)
        open_step.executions += len(samples.samples)
        if not samples.samples:
            return
        for micro in micro_steps(samples.samples, self._config.cells.token_budget, step, self._ids):
            open_step.micros[micro.micro_id] = micro
            open_step.whole.clear()
            self._queue.put_nowait(micro)

    def start(self, cell: int, tasks: asyncio.TaskGroup) -> None:
        """A cell is in training now."""
        if cell == CORE:
            self._core_trains.set()
        self._workers[cell] = Worker(tasks.create_task(self._work(cell), name=f"cell-{cell}"))

    async def stop(self, cell: int) -> None:
        """A cell is about to leave training: returns when it has no micro-step in hand."""
        worker = self._forget(cell)
        if worker is not None:
            worker.leaving = True
            if not worker.busy:
                worker.task.cancel()
            await asyncio.wait([worker.task])

    async def stop_all(self) -> None:
        """The run is over; a fixed split's training cells never leave."""
        for cell in list(self._workers):
            await self.stop(cell)

    def lost(self, cell: int) -> None:
        """Take back what a dead cell computed but did not deliver."""
        worker = self._forget(cell)
        if worker is not None and not worker.busy:
            worker.task.cancel()
        if not self._stepping:
            self._take_back(cell)

    def _take_back(self, cell: int) -> None:
        undelivered = self._cluster.undelivered(cell)
        if self._open is None:
            return
        for micro_id in undelivered:
            if self._open.done.pop(micro_id, None) is not None:
                self._open.whole.clear()
                self._queue.put_nowait(self._open.micros[micro_id])

    def _forget(self, cell: int) -> Worker | None:
        if cell == CORE:
            self._core_trains.clear()
        return self._workers.pop(cell, None)

    async def close(self, step: int, ended: Callable[[StepResult], Awaitable[None]]) -> None:
        """All groups of the step are admitted: finish it, take the optimiser step and say so."""
        open_step = self._step(step)
        started = self._clock.now()
        stats: StepStats | None = None
        if open_step.executions:
            while stats is None:
                await open_step.whole.wait()
                await self._core_trains.wait()
                if open_step.whole.is_set():  # no cell was lost while the core was on its way
                    stats = await self._optimise(open_step)
        self._open = None
        await ended(
            StepResult(
                step=step,
                executions=open_step.executions,
                stats=stats,
                micros=[measured for _, measured in open_step.done.values()],
                seconds=self._clock.now() - started,
                computed_s=open_step.computed_s,
                cells=sorted({cell for cell, _ in open_step.done.values()}),
            )
        )

    async def _optimise(self, open_step: OpenStep) -> StepStats | None:
        self._stepping = True
        try:
            return await self._cluster.step(
                open_step.number, open_step.executions, self._rate(open_step.number)
            )
        except CellLostError as error:
            if error.cell == CORE:
                self._core_trains.clear()
            return None
        finally:
            self._stepping = False
            for cell in range(self._config.cells.count):
                self._take_back(cell)

    def _rate(self, step: int) -> float:
        learner, last = self._config.learner, max(self._config.run.steps - 1, 1)
        share = 1 - (1 - learner.final_learning_rate_share) * step / last
        return learner.learning_rate * share

    def _step(self, number: int) -> OpenStep:
        if self._open is None:
            self._open = OpenStep(number)
            self._open.whole.set()
        assert self._open.number == number, f"step {number} overlaps step {self._open.number}"
        return self._open

    async def _work(self, cell: int) -> None:
        worker = self._workers[cell]
        while not worker.leaving:
            micro = await self._queue.get()
            worker.busy, began = True, self._clock.now()
            try:
                measured = await self._cluster.accumulate(cell, micro)
            except CellLostError:
                self._queue.put_nowait(micro)
                self.lost(cell)
                return
            self._finish(cell, micro, measured, self._clock.now() - began)
            worker.busy = False

    def _finish(self, cell: int, micro: MicroStep, measured: MicroStats, seconds: float) -> None:
        assert self._open is not None
        self._open.computed_s += seconds
        self._open.done[micro.micro_id] = (cell, measured)
        if len(self._open.done) == len(self._open.micros):
            self._open.whole.set()
