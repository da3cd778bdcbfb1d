"""How an execution of a recording ends, and what is booked of it.

Invariant: an execution ends once. Its end, its reward and its place in a group become durable in one
step; the same end again, now or after a restart, gets the same answer, and another one is refused.
"""

import asyncio
import sys

import msgspec
from msgspec import Struct

from opengyre.app.recording.options import RECORDED
from opengyre.app.recording.show import Totals
from opengyre.app.recording.weighing import Groups
from opengyre.config.run import RunConfig
from opengyre.core.protocols import Clock
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import ExecutionRecord, Verdict
from opengyre.proxy.executions import DoorReport, Executions
from opengyre.proxy.messages import Json
from opengyre.proxy.refusals import Kind, Refusal, bad
from opengyre.store.rows import EndRow
from opengyre.store.run import RunStore

SHOWN = 80
"""Characters of a value that a message repeats."""


class Said(Struct, frozen=True, kw_only=True):
    """What the one who ends an execution says of it."""

    reward: float | None
    group: str
    task: str
    passed: bool | None
    detail: str

    @staticmethod
    def of(body: dict[str, Json], execution_id: str) -> "Said":
        """Raises Refusal."""
        return Said(
            reward=_reward(body),
            group=_text(body, "group", execution_id),
            task=_text(body, "task", RECORDED),
            passed=_truth(body, "passed"),
            detail=_text(body, "detail", ""),
        )


class Told(Struct, frozen=True, kw_only=True):
    """The answer to whoever ends an execution."""

    calls: int
    sampled_tokens: int


class Endings:
    """Ends executions and books their rewards. The store is read when it is made, not later."""

    def __init__(
        self, executions: Executions, store: RunStore, config: RunConfig, clock: Clock, harness: str
    ) -> None:
        self._executions, self._store = executions, store
        self._clock, self._harness = clock, harness
        self._groups = Groups(store, config)
        self._under_way: dict[str, tuple[Said, asyncio.Task[Told]]] = {}
        self._ends: dict[str, tuple[Said, Told]] = {}
        self.totals = Totals()
        """Over all that ended, whenever that was."""
        for row in store.ends():
            report = msgspec.json.decode(row.report, type=DoorReport)
            self._book(msgspec.json.decode(row.said, type=Said), report)
        self._ended = set(self._ends) | {
            name for name in store.recorded() if name not in executions
        }

    def __contains__(self, execution_id: str) -> bool:
        """Whether it has ended."""
        return execution_id in self._ended

    async def complete(self) -> None:
        """Finish what a killed proxy had begun."""
        await self._groups.complete()

    async def end(self, execution_id: str, said: Said) -> Told:
        """No more calls; with a reward there is a record and an advantage.

        Raises Refusal when it has ended in another way.
        """
        if execution_id in self._ended:
            return await self._again(execution_id, said)
        under_way = self._under_way.get(execution_id)
        if under_way is None:
            task = asyncio.ensure_future(self._end(execution_id, said))
            under_way = self._under_way[execution_id] = said, task
            task.add_done_callback(lambda _task: self._under_way.pop(execution_id))
        if under_way[0] != said:
            raise _otherwise(execution_id)
        return await asyncio.shield(under_way[1])  # whoever asked may leave

    async def settled(self) -> None:
        """Return once nothing is under way any more."""
        while self._under_way:
            await asyncio.wait([task for _, task in self._under_way.values()])

    async def _again(self, execution_id: str, said: Said) -> Told:
        if execution_id not in self._ends:
            raise Refusal(Kind.NOT_FOUND, f"execution {execution_id} has ended")
        before, told = self._ends[execution_id]
        if before != said:
            raise _otherwise(execution_id)
        if said.reward is not None and told.calls:
            await self._groups.weigh(said.group)
        return told

    async def _end(self, execution_id: str, said: Said) -> Told:
        record: ExecutionRecord | None = None

        async def keep(report: DoorReport) -> None:
            nonlocal record
            record = self._record(report, said)
            row = EndRow(
                execution_id=execution_id,
                said=msgspec.json.encode(said).decode(),
                report=msgspec.json.encode(report).decode(),
            )
            group = None if record is None else self._groups.row_for(record)
            await self._store.end(row, record, group)

        report = await self._executions.close(execution_id, keep)
        self._ended.add(execution_id)
        told = self._book(said, report)
        if record is not None:
            self._groups.join(record)
            await self._groups.weigh(record.group_id)
        return told

    def _book(self, said: Said, report: DoorReport) -> Told:
        told = Told(calls=report.calls, sampled_tokens=report.sampled_tokens)
        self._ends[report.execution_id] = said, told
        self.totals.add(report)
        return told

    def _record(self, report: DoorReport, said: Said) -> ExecutionRecord | None:
        """None where nothing can be weighed: no reward, or no call."""
        if said.reward is None or report.began_at is None:
            return None
        return ExecutionRecord(
            execution_id=report.execution_id,
            group_id=said.group,
            task_id=said.task,
            harness=self._harness,
            split="train",
            version_dispatched=report.oldest_version or 0,
            attempt=1,
            dispatched_at=report.began_at,
            started_at=report.began_at,
            ended_at=self._clock.now(),
            verdict=Verdict(
                kind=VerdictKind.SCORED,
                ending=Ending.FINISHED,
                reward=said.reward,
                passed=said.passed,
                detail=said.detail,
            ),
        )


def _otherwise(execution_id: str) -> Refusal:
    return Refusal(
        Kind.CONFLICT,
        f"execution {execution_id} was ended with other words; an execution ends once",
    )


def shortened(value: Json) -> str:
    """A value in a message."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _reward(said: dict[str, Json]) -> float | None:
    reward = said.get("reward")
    if reward is None:
        return None
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        raise bad(f"wanted a finite number as reward; found {shortened(reward)}")
    if not abs(reward) <= sys.float_info.max:
        raise bad(f"wanted a finite number as reward; found {shortened(reward)}")
    return float(reward)


def _truth(said: dict[str, Json], key: str) -> bool | None:
    found = said.get(key)
    if found is not None and not isinstance(found, bool):
        raise bad(f"wanted true or false as {key}; found {shortened(found)}")
    return found


def _text(said: dict[str, Json], key: str, default: str) -> str:
    found = said.get(key, default)
    if not isinstance(found, str):
        raise bad(f"wanted text as {key}; found {shortened(found)}")
    return found
