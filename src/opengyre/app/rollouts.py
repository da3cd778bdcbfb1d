"""Starts executions while rollout cells have room for them; first ordered, first started."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from opengyre.app.episode import Order, Watch, Workshop, run_execution
from opengyre.core.records import ExecutionRecord


def _nobody(order: Order) -> None:
    """Evaluation has no scheduler to tell."""


@dataclass(frozen=True)
class Watcher:
    """What is told about an execution."""

    recorded: Callable[[ExecutionRecord], Awaitable[None]]
    started: Callable[[Order], None] = _nobody
    agent_ended: Callable[[Order], None] = _nobody


class Rollouts:
    """A queue of orders before a room that grows and shrinks with the rollout cells."""

    def __init__(self, shop: Workshop, tasks: asyncio.TaskGroup, room: Callable[[], int]) -> None:
        self._shop = shop
        self._tasks = tasks
        self._room = room
        self._waiting: deque[tuple[Order, Watcher]] = deque()
        self.live: dict[str, Order] = {}
        """Executions whose agent is at work, by member."""

    def order(self, order: Order, watcher: Watcher) -> None:
        """Queue one execution; it starts at once if there is room."""
        self._waiting.append((order, watcher))
        self.fill()

    def fill(self) -> None:
        """Start what there is room for. Call it whenever the room may have grown."""
        while self._waiting and len(self.live) < self._room():
            order, watcher = self._waiting.popleft()
            self.live[order.member] = order
            watcher.started(order)
            self._tasks.create_task(self._run(order, watcher), name=order.member)

    async def _run(self, order: Order, watcher: Watcher) -> None:
        def agent_done() -> None:
            del self.live[order.member]
            watcher.agent_ended(order)
            self.fill()

        await run_execution(order, self._shop, Watch(agent_done, watcher.recorded))
