"""The live world around the scheduler: tells it what happened, does what it decides.

Events go through one queue and decisions are carried out in order; whatever takes time runs as a
task of its own and reports back by an event.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass

from opengyre.app.episode import Order
from opengyre.app.groups import Group, GroupBook
from opengyre.app.history import History
from opengyre.app.keeping import MAX_FAILED_RESTARTS
from opengyre.app.rollouts import Rollouts, Watcher
from opengyre.app.steps import StepResult, StepRunner
from opengyre.cluster.base import CORE, CellLostError, Cluster
from opengyre.core.protocols import Clock
from opengyre.core.reasons import CellRole
from opengyre.core.records import ExecutionRecord
from opengyre.scheduler.base import (
    AdmitGroup,
    Begin,
    CarriedGroup,
    CellLost,
    CellReturned,
    CloseStep,
    Decision,
    DispatchGroups,
    Event,
    ExecutionEnded,
    ExecutionStarted,
    Finish,
    GroupDispatched,
    GroupReady,
    PauseRollout,
    Published,
    PublishWeights,
    RestartCore,
    ResumeRollout,
    StepDone,
    SwitchCell,
    Switched,
)
from opengyre.scheduler.scheduler import Scheduler


@dataclass(frozen=True)
class Parts:
    """What the live world is made of."""

    scheduler: Scheduler
    cluster: Cluster
    rollouts: Rollouts
    groups: GroupBook
    steps: StepRunner
    history: History
    clock: Clock
    tasks: asyncio.TaskGroup
    published: Callable[[int, int], Awaitable[None]]


class Live:
    """One run of the scheduler from Begin to Finish."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._steps_done = parts.scheduler.state.steps_done
        self._failed_restarts: Counter[int] = Counter()
        """In a row, by cell."""

    async def run(self, carried: list[Group]) -> None:
        """Returns after the scheduler's Finish."""
        parts = self._parts
        watch = parts.tasks.create_task(self._watch_cells(), name="watch-cells")
        known = tuple(
            CarriedGroup(
                group.row.group_id,
                group.row.version_dispatched,
                ready=group.samples is not None,
                ended=len(group.done()),
            )
            for group in carried
        )
        self.post(Begin(known))
        for group in carried:
            self._order(group)
        finished = False
        while not finished:
            event = await self._events.get()
            for decision in parts.scheduler.decide(event, parts.clock.now()):
                finished = isinstance(decision, Finish) or finished
                await self._carry_out(decision)
            parts.rollouts.fill()
            await parts.history.waterlevel(parts.scheduler.state)
        watch.cancel()
        await parts.steps.stop_all()

    def post(self, event: Event) -> None:
        """Tell the scheduler something."""
        self._events.put_nowait(event)

    async def _carry_out(self, decision: Decision) -> None:  # noqa: C901 — one case a decision
        parts = self._parts
        match decision:
            case DispatchGroups(count):
                for _ in range(count):
                    await self._dispatch()
            case AdmitGroup(group_id, step):
                samples = parts.groups.groups[group_id].samples
                assert samples is not None, f"{group_id} was admitted before it was ready"
                parts.steps.admit(samples, step)
            case CloseStep(step, groups):
                self._spawn(self._close_step(step, list(groups)))
            case SwitchCell(cell, role):
                self._spawn(self._switch(cell, role))
            case PublishWeights(version):
                self._spawn(self._publish(version))
            case PauseRollout():
                await parts.cluster.pause()
            case ResumeRollout():
                await parts.cluster.resume()
            case RestartCore():
                self._spawn(self._restart(CORE))
            case Finish():
                pass

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._parts.tasks.create_task(work)

    async def _dispatch(self) -> None:
        group = await self._parts.groups.open(self._parts.cluster.version)
        self.post(GroupDispatched(group.row.group_id, group.row.version_dispatched))
        self._order(group)

    def _order(self, group: Group) -> None:
        watcher = Watcher(self._recorded, self._started, self._ended)
        for order in self._parts.groups.orders(group):
            self._parts.rollouts.order(order, watcher)

    def _started(self, order: Order) -> None:
        self.post(ExecutionStarted(order.member, order.group_id))

    def _ended(self, order: Order) -> None:
        self.post(ExecutionEnded(order.member, order.group_id))

    async def _recorded(self, record: ExecutionRecord) -> None:
        self._parts.history.execution(record)
        await self._parts.groups.add(record, self._ready)

    async def _ready(self, group: Group) -> None:
        self.post(GroupReady(group.row.group_id))

    async def _switch(self, cell: int, role: CellRole) -> None:
        try:
            await self._change_role(cell, role)
        except CellLostError:
            return  # whoever watches the cells tells the scheduler
        self.post(Switched(cell, role))

    async def _change_role(self, cell: int, role: CellRole) -> None:
        parts = self._parts
        await parts.history.role(cell, CellRole.SWITCHING)
        if role is CellRole.TRAINING:
            report = await parts.cluster.to_training(cell)
            parts.steps.start(cell, parts.tasks)
            await parts.history.switch(report)
        else:
            await parts.steps.stop(cell)
            await parts.cluster.to_rollout(cell)
        await parts.history.role(cell, role)

    async def _close_step(self, step: int, groups: list[str]) -> None:
        async def ended(result: StepResult) -> None:
            self._steps_done = step + 1
            consumed = self._parts.groups.consume(groups)
            await self._parts.history.step(result, consumed, self._parts.cluster.version)
            self.post(StepDone(step, result.computed_s))

        await self._parts.steps.close(step, ended)

    async def _publish(self, version: int) -> None:
        await self._parts.cluster.publish(version)
        await self._parts.history.published(version)
        await self._parts.published(version, self._steps_done)
        self.post(Published(version))

    async def _restart(self, cell: int) -> None:
        try:
            await self._parts.cluster.restart(cell)
        except CellLostError:
            self._failed_restarts[cell] += 1
            if cell == CORE or self._failed_restarts[cell] >= MAX_FAILED_RESTARTS:
                raise
            return  # it is lost again, and told so
        self._failed_restarts[cell] = 0
        self.post(CellReturned(cell))
        await self._parts.history.role(cell, CellRole.ROLLOUT)

    async def _watch_cells(self) -> None:
        while True:
            cell = await self._parts.cluster.lost.get()
            self._parts.steps.lost(cell)
            self.post(CellLost(cell))
            await self._parts.history.role(cell, CellRole.LOST)
            if cell != CORE:
                self._spawn(self._restart(cell))
