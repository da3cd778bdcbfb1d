"""An evaluation that was stopped goes on: what was measured with these weights is not run again."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.app.test_steps import a_config
from tests.app.test_summary import a_record

from opengyre.app.episode import Order
from opengyre.app.heldout import HeldOut
from opengyre.app.history import History
from opengyre.app.rollouts import Rollouts, Watcher
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import VerdictKind
from opengyre.core.records import ExecutionRecord
from opengyre.store.run import RunStore
from opengyre.tasks.bundled import write_bundled
from opengyre.tasks.load import load_tasks


def of_member(member: str, *, passed: bool) -> ExecutionRecord:
    record = a_record(f"{member}-id", final=True, kind=VerdictKind.SCORED)
    verdict = msgspec.structs.replace(record.verdict, reward=float(passed), passed=passed)
    return msgspec.structs.replace(record, member=member, split="heldout", verdict=verdict)


class Instant(Rollouts):
    """Every execution ends at once, and fails its task."""

    def __init__(self) -> None:
        self.ordered: list[str] = []
        self._running: list[asyncio.Task[None]] = []

    def order(self, order: Order, watcher: Watcher) -> None:
        self.ordered.append(order.member)
        record = of_member(order.member, passed=False)
        self._running.append(asyncio.ensure_future(watcher.recorded(record)))


@pytest.mark.parametrize(
    ("version", "ran", "rate"),
    [(0, ["before-0001-0", "before-0002-0"], 1 / 3), (1, None, 0.0)],
)
async def test_only_what_is_missing_is_run(
    tmp_path: Path, version: int, ran: list[str] | None, rate: float
) -> None:
    write_bundled("rename", "heldout", 3, 0, tmp_path / "tasks")
    rollouts, clock = Instant(), FakeClock()
    with RunStore(tmp_path / "run.sqlite") as store:
        await store.put_execution(of_member("before-0000-0", passed=True))
        history = History(store, clock, 2, lambda _: None)
        held = HeldOut(a_config(), load_tasks(tmp_path / "tasks"), rollouts, history, store, clock)
        result = await held.evaluate("before", version, 0, greedy=False)
    assert rollouts.ordered == (ran or [f"before-{i:04d}-0" for i in range(3)])
    assert len(result.passed) == 3
    assert result.pass_rate == pytest.approx(rate)
