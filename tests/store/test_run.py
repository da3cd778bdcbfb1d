import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opengyre.core.errors import StoreError
from opengyre.core.reasons import Ending, FinishReason, Role, VerdictKind
from opengyre.core.records import Call, ExecutionRecord, Verdict, VersionSpan
from opengyre.store.rows import EventRow, GroupRow, GroupState, StepRow
from opengyre.store.run import RunStore


def a_call(execution_id: str = "e1", index: int = 0) -> Call:
    return Call(
        call_id=f"{execution_id}-c{index}",
        execution_id=execution_id,
        index=index,
        dialect="anthropic",
        parent_id=None,
        reused=0,
        suffix_ids=[1, 2, 3],
        output_ids=[4, 5],
        output_logprobs=[-0.1, -0.2500000001],
        versions=[VersionSpan(0, 0, 2)],
        finish=FinishReason.STOP,
        role=Role.MAIN,
        role_why="test",
        fork=None,
        started_at=0.0,
        ended_at=1.0,
    )


def a_group(index: int, state: GroupState = GroupState.OUTSTANDING) -> GroupRow:
    return GroupRow(
        group_id=f"g{index}", index=index, task_id="t", version_dispatched=0, state=state
    )


async def test_what_was_written_is_read_back_exactly(tmp_path: Path) -> None:
    record = ExecutionRecord(
        execution_id="e1",
        group_id="g1",
        task_id="t",
        harness="command",
        split="train",
        version_dispatched=0,
        attempt=1,
        dispatched_at=0.0,
        started_at=1.0,
        ended_at=2.0,
        verdict=Verdict(kind=VerdictKind.SCORED, ending=Ending.FINISHED, reward=0.5),
    )
    event = EventRow(at=1.0, kind="role", fields={"cell": 0.0, "role": "training"})
    with RunStore(tmp_path / "run.sqlite") as store:
        await asyncio.gather(*(store.record(a_call(index=i)) for i in range(20)))
        await store.put_execution(record)
        await store.put_event(event)
    with RunStore(tmp_path / "run.sqlite") as again:
        assert again.calls("e1") == [a_call(index=i) for i in range(20)]
        assert again.executions() == [record]
        assert again.events("role") == [event]


async def test_a_call_that_is_recorded_twice_is_refused_and_others_of_its_batch_are_kept(
    tmp_path: Path,
) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        results = await asyncio.gather(
            store.record(a_call("a")),
            store.record(a_call("b")),
            store.record(a_call("a")),
            store.record(a_call("c")),
            return_exceptions=True,
        )
        assert [type(r) for r in results] == [type(None), type(None), StoreError, type(None)]
        assert all(store.calls(e) == [a_call(e)] for e in "abc")


async def test_rewinding_gives_back_the_groups_of_lost_steps(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        for step in (1, 2):
            used = GroupRow(
                group_id=f"g{step}",
                index=step,
                task_id="t",
                version_dispatched=0,
                state=GroupState.CONSUMED,
                step=step,
            )
            row = StepRow(
                step=step,
                version=0,
                at=1.0,
                executions=8,
                groups=[used.group_id],
                reward_mean=0.5,
                pass_rate=0.5,
                metrics={},
            )
            await store.put_step(row, [used])
        await store.rewind(1)
        assert [row.step for row in store.steps()] == [1]
        assert [row.state for row in store.groups()] == [GroupState.CONSUMED, GroupState.READY]


WRITER = """
import asyncio, sys
from pathlib import Path
from opengyre.store.run import RunStore
from tests.store.test_run import a_call

async def main():
    store = RunStore(Path(sys.argv[1]))
    for i in range(100000):
        await store.record(a_call(index=i))
        print(i, flush=True)

asyncio.run(main())
"""


def test_every_call_that_was_acknowledged_survives_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as writer:
        assert writer.stdout is not None
        last = -1
        for line in writer.stdout:
            last = int(line)
            if last == 30:
                os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    with RunStore(path) as store:
        found = store.calls("e1")
    assert last >= 30
    assert len(found) >= last + 1
    assert found == [a_call(index=i) for i in range(len(found))]


async def test_a_full_disk_is_a_clear_error_and_nothing_recorded_is_lost(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        await store.record(a_call("kept"))
        pages = store._writer._connection.execute("PRAGMA page_count").fetchone()[0]
        store._writer._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match=r"full.*kept"):
            await _record_many(store)
        assert store.calls("kept") == [a_call("kept")]


async def _record_many(store: RunStore) -> None:
    for i in range(1000):
        await store.record(a_call("lost", i))


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"not a database, but long enough to look at" * 40)
    with pytest.raises(StoreError, match="not a database"):
        RunStore(path)
