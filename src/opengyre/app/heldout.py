"""Held-out evaluation: the same harness, sandbox and proxy as in training, on tasks never trained."""

import asyncio
from dataclasses import dataclass

from opengyre.app.episode import Order
from opengyre.app.groups import seed_of
from opengyre.app.history import History
from opengyre.app.rollouts import Rollouts, Watcher
from opengyre.config.run import RunConfig
from opengyre.core.protocols import Clock
from opengyre.core.reasons import VerdictKind
from opengyre.core.records import ExecutionRecord
from opengyre.store.run import RunStore
from opengyre.tasks.base import Task


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation measured over the scored executions."""

    name: str
    passed: list[bool]
    rewards: list[float]
    excluded: int

    @property
    def pass_rate(self) -> float:
        """Pass@1; 0 when nothing could be scored."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0


class HeldOut:
    """Runs evaluations over the run's held-out tasks."""

    def __init__(
        self,
        config: RunConfig,
        tasks: list[Task],
        rollouts: Rollouts,
        history: History,
        store: RunStore,
        clock: Clock,
    ) -> None:
        self._store = store
        self._config = config
        self._tasks = tasks
        self._rollouts = rollouts
        self._history = history
        self._clock = clock

    async def evaluate(self, name: str, version: int, step: int, *, greedy: bool) -> Evaluation:
        """Every held-out task, `eval.samples` times (once when greedy)."""
        sampled = self._config.eval.temperature or self._config.policy.temperature
        temperature = 0.0 if greedy else sampled
        samples = 1 if greedy else self._config.eval.samples
        orders = [
            self._order(f"{name}-{i:04d}-{j}", task, version, temperature)
            for i, task in enumerate(self._tasks)
            for j in range(samples)
        ]
        await self._history.phase(name, len(orders))
        known = self._recorded({order.member for order in orders}, version)
        for record in known.values():
            self._history.execution(record)
        final = [*known.values(), *await self._run([o for o in orders if o.member not in known])]
        scored = [r.verdict for r in final if r.verdict.kind is VerdictKind.SCORED]
        result = Evaluation(
            name=name,
            passed=[bool(verdict.passed) for verdict in scored],
            rewards=[verdict.reward or 0.0 for verdict in scored],
            excluded=len(final) - len(scored),
        )
        await self._history.evaluation(name, step, result.passed)
        return result

    def _recorded(self, members: set[str], version: int) -> dict[str, ExecutionRecord]:
        """What these weights did already, before the run was stopped and resumed."""
        return {
            record.member: record
            for record in self._store.executions()
            if record.final and record.member in members and record.version_dispatched == version
        }

    async def _run(self, orders: list[Order]) -> list[ExecutionRecord]:
        final: list[ExecutionRecord] = []
        whole = asyncio.Event()

        async def recorded(record: ExecutionRecord) -> None:
            self._history.execution(record)
            if record.final:
                final.append(record)
            if len(final) == len(orders):
                whole.set()

        for order in orders:
            self._rollouts.order(order, Watcher(recorded))
        if orders:
            await whole.wait()
        return final

    def _order(self, member: str, task: Task, version: int, temperature: float) -> Order:
        return Order(
            member=member,
            group_id=member.rsplit("-", 1)[0],
            task=task,
            split="heldout",
            version=version,
            seed=seed_of(self._config.run.seed, member),
            temperature=temperature,
            dispatched_at=self._clock.now(),
        )
