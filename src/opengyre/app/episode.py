"""One execution from workspace to verdict.

Invariant: whatever happens, every try ends with exactly one record; a failure of ours is tried again
in budget and then excluded, never scored.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from opengyre.app.paths import RunPaths
from opengyre.config.run import RunConfig
from opengyre.core.errors import HarnessError, SandboxError
from opengyre.core.protocols import Clock, IdSource
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import ExecutionRecord, Verdict
from opengyre.harness.base import Harness, HarnessOutcome, HarnessRun
from opengyre.harness.run import ending_of, run_harness
from opengyre.proxy.executions import DoorReport, Executions
from opengyre.sandbox.base import Sandbox
from opengyre.store.run import RunStore
from opengyre.tasks.base import Task
from opengyre.tasks.evaluate import evaluate
from opengyre.tasks.workspace import discard, materialise

EVALUATION_ATTEMPTS = 2
"""An evaluator that fails twice on the same snapshot is broken, not unlucky."""

OUR_FAULT = (Ending.NEVER_STARTED, Ending.SANDBOX_DIED, Ending.MODEL_FAILED)
"""Endings that are tried again."""

MEGABYTE = 1024 * 1024

DETAIL_LIMIT = 2000
"""Characters of a program's last words that a record keeps."""


@dataclass(frozen=True)
class Order:
    """An execution to run."""

    member: str
    """Its place in its group; each try gets an execution id of its own."""
    group_id: str
    task: Task
    split: str
    version: int
    seed: int
    temperature: float
    dispatched_at: float


@dataclass
class Tally:
    """Counts over all executions of a run, for the summary."""

    calls: int = 0
    refused_calls: int = 0
    repeated_calls: int = 0
    malformed_tool_calls: int = 0
    reused_tokens: int = 0
    prompt_tokens: int = 0
    harness_visible_errors: int = 0
    retries: int = 0
    forks: dict[str, int] = field(default_factory=dict)
    calls_by_cell: Counter[int] = field(default_factory=Counter)
    tokens_by_cell: Counter[int] = field(default_factory=Counter)

    def add(self, report: DoorReport) -> None:
        self.calls += report.calls
        self.refused_calls += report.refused_calls
        self.repeated_calls += report.repeated_calls
        self.malformed_tool_calls += report.malformed_tool_calls
        self.reused_tokens += report.reused_tokens
        self.prompt_tokens += report.prompt_tokens
        self.harness_visible_errors += report.failed_calls
        for reason, count in report.forks.items():
            self.forks[reason] = self.forks.get(reason, 0) + count
        self.calls_by_cell.update(report.calls_by_cell)
        self.tokens_by_cell.update(report.tokens_by_cell)


@dataclass(frozen=True)
class Workshop:
    """What every execution of a run shares."""

    config: RunConfig
    paths: RunPaths
    harness: Harness
    sandbox: Sandbox
    executions: Executions
    store: RunStore
    clock: Clock
    ids: IdSource
    tally: Tally
    released: Callable[[str], None]
    """Told an execution's id when it will make no more model calls."""


@dataclass(frozen=True)
class Watch:
    """What is told about one execution."""

    agent_done: Callable[[], None]
    """Its last model call is over; called once."""
    recorded: Callable[[ExecutionRecord], Awaitable[None]]
    """Every try's record, the final one last."""


async def run_execution(order: Order, shop: Workshop, watch: Watch) -> None:
    """Run, score and record one execution, trying again what fails through our fault."""
    attempts = shop.config.harness.attempts
    for attempt in range(1, attempts + 1):
        run = Attempt(order, shop, attempt)
        try:
            record = await run.carry_out(watch.agent_done, last=attempt == attempts)
        finally:
            await discard(run.root)
        await shop.store.put_execution(record)
        await watch.recorded(record)
        if record.final:
            return
        shop.tally.retries += 1


class Attempt:
    """One try of an execution."""

    def __init__(self, order: Order, shop: Workshop, number: int) -> None:
        self.order = order
        self.shop = shop
        self.number = number
        self.execution_id = shop.ids.new(order.member)
        self.root = shop.paths.workspace(self.execution_id)
        self.started = shop.clock.now()

    async def carry_out(self, agent_done: Callable[[], None], *, last: bool) -> ExecutionRecord:
        """Agent, then verdict, inside the overall limit."""
        agent_is_done = False
        try:
            async with asyncio.timeout(self.shop.config.harness.overall_timeout_s):
                ending, detail = await self._work()
                if ending in OUR_FAULT and not last:
                    return self._record(_failed(ending, detail), final=False)
                agent_is_done = True
                agent_done()
                return self._record(await self._verdict(ending, detail))
        except TimeoutError:
            if not agent_is_done:
                agent_done()
            kind, ending = VerdictKind.OVERALL_TIMEOUT, Ending.OVERALL_TIMEOUT
            return self._record(Verdict(kind=kind, ending=ending))

    async def _work(self) -> tuple[Ending, str]:
        key = self.shop.ids.new("key")
        self.shop.executions.open(
            self.execution_id,
            key,
            harness=self.shop.config.harness.name,
            seed=self.order.seed,
            temperature=self.order.temperature,
        )
        try:
            await materialise(self.order.task, self.root / "app", self.shop.sandbox)
            outcome = await run_harness(self.shop.harness, self._run(key), self.shop.sandbox)
        except (HarnessError, SandboxError) as error:
            return Ending.SANDBOX_DIED, str(error)
        finally:
            report = await self.shop.executions.close(self.execution_id)
            self.shop.tally.add(report)
            self.shop.released(self.execution_id)
        ending = ending_of(
            outcome,
            report.complete_replies,
            report.failed_calls,
            last_failed=report.last_failed,
            context_limit=report.context_limit_hit,
        )
        return ending, self._last_words(outcome, report)

    def _last_words(self, outcome: HarnessOutcome, report: DoorReport) -> str:
        """For whoever asks why it ended: programs tell on either stream, or not at all."""
        words = [
            outcome.stdout_tail[-DETAIL_LIMIT // 2 :],
            outcome.stderr_tail[-DETAIL_LIMIT // 2 :],
        ]
        if report.context_limit_hit:
            limit = self.shop.config.policy.context_tokens
            words.append(f"a prompt was longer than policy.context_tokens = {limit}")
        return "\n".join(said for word in words if (said := word.strip()))

    def _run(self, key: str) -> HarnessRun:
        task = self.order.task
        return HarnessRun(
            execution_id=self.execution_id,
            instruction=task.instruction,
            workspace=self.root / "app",
            workdir=task.workdir,
            socket=self.shop.paths.socket,
            base_path=f"/run/{self.execution_id}",
            key=key,
            model="opengyre-policy",
            timeout_s=task.agent_timeout_s or self.shop.config.harness.timeout_s,
            args=self.shop.config.harness.args,
            env=self.shop.config.harness.env,
        )

    async def _verdict(self, ending: Ending, detail: str) -> Verdict:
        if ending in OUR_FAULT:
            return _failed(ending, detail)
        scratch = self.root / "scratch"
        return await evaluate(
            self.order.task,
            self.root / "app",
            self.shop.sandbox,
            scratch,
            ending,
            EVALUATION_ATTEMPTS,
            max_bytes=self.shop.config.sandbox.workspace_mb * MEGABYTE,
        )

    def _record(self, verdict: Verdict, *, final: bool = True) -> ExecutionRecord:
        return ExecutionRecord(
            execution_id=self.execution_id,
            group_id=self.order.group_id,
            task_id=self.order.task.task_id,
            harness=self.shop.config.harness.name,
            split=self.order.split,
            version_dispatched=self.order.version,
            attempt=self.number,
            dispatched_at=self.order.dispatched_at,
            started_at=self.started,
            ended_at=self.shop.clock.now(),
            verdict=verdict,
            member=self.order.member,
            final=final,
        )


def _failed(ending: Ending, detail: str) -> Verdict:
    kind = VerdictKind.INFRASTRUCTURE_FAILURE
    return Verdict(kind=kind, ending=ending, detail=detail[-DETAIL_LIMIT:])
