import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from opengyre.core.errors import StoreError, UserError
from opengyre.core.reasons import Ending, FinishReason, Role, VerdictKind
from opengyre.core.records import Call, ExecutionRecord, Verdict, VersionSpan
from opengyre.store.rows import EventRow, GroupRow, GroupState, LifeRow, StepRow
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
    with pytest.raises(UserError, match=r"not a database.*pass a run's folder"):
        RunStore(path)


async def test_a_resumed_run_forgets_what_was_published_and_measured_after_its_last_checkpoint(
    tmp_path: Path,
) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        for step in (1, 2):
            row = StepRow(
                step=step,
                version=0,
                at=10.0 * step,
                executions=8,
                groups=[],
                reward_mean=0.5,
                pass_rate=0.5,
                metrics={},
            )
            await store.put_step(row, [])
            events: list[tuple[str, dict[str, str | float]]] = [
                ("role", {"cell": 0.0, "role": "training"}),
                ("published", {"version": float(step)}),
                ("evaluation", {"name": "between", "step": float(step)}),
            ]
            for kind, fields in events:
                await store.put_event(EventRow(at=10.0 * step + 1, kind=kind, fields=fields))
        assert store.last_second() == 21.0
        await store.rewind(1)
        assert [event.at for event in store.events("published")] == [11.0]
        assert [event.fields["step"] for event in store.events("evaluation")] == [1.0]
        assert [event.at for event in store.events("role")] == [11.0, 21.0]
        assert store.last_second() == 21.0


async def test_an_error_of_any_kind_reaches_its_writer_and_stops_nobody_else(
    tmp_path: Path,
) -> None:
    too_long = 1 << 64  # an OverflowError, which is not one of SQLite's
    with RunStore(tmp_path / "run.sqlite") as store:
        writer = store._writer
        results = await asyncio.gather(
            writer.write(
                ("INSERT INTO events (id, kind, body) VALUES (?, 'a', x'00')", (too_long,))
            ),
            store.record(a_call()),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [StoreError, type(None)]
        writer.post(("INSERT INTO nothing VALUES (?)", (1,)))
        await writer.settled()
        assert writer.failed_posts == 1
        await store.record(a_call(index=1))
        assert len(store.calls("e1")) == 2


async def test_a_writing_thread_that_ends_leaves_nobody_waiting(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run.sqlite")
    waiting = [asyncio.ensure_future(store.record(a_call(index=index))) for index in range(5)]
    await asyncio.wait(waiting, timeout=0)
    store.close()
    await asyncio.gather(*waiting)
    with pytest.raises(StoreError, match="closed"):
        await store.record(a_call(index=9))
    store.close()
    with RunStore(tmp_path / "run.sqlite") as again:
        assert len(again.calls("e1")) == 5


def test_a_file_of_another_program_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE urls (url TEXT)")
        other.execute("INSERT INTO urls VALUES ('x')")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"another program.*pass a run's folder"):
        RunStore(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_store_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    RunStore(path).close()
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(UserError, match=r"schema 99.*OpenGyre that wrote it"):
        RunStore(path)


@pytest.mark.parametrize(
    ("schema", "without"),
    [
        (1, ("doors", "begun", "progress", "traces", "ends", "lives")),
        (2, ("ends", "lives")),
        (3, ("lives",)),
    ],
)
async def test_a_store_of_an_older_schema_gets_the_tables_that_it_lacks(
    tmp_path: Path, schema: int, without: tuple[str, ...]
) -> None:
    path = tmp_path / "run.sqlite"
    with RunStore(path) as store:
        await store.record(a_call())
    with contextlib.closing(sqlite3.connect(path)) as other:
        for table in without:
            other.execute(f"DROP TABLE {table}")
        other.execute(f"PRAGMA user_version = {schema}")
    with RunStore(path) as again:
        assert again.calls("e1") == [a_call()]
        assert again.journal.open_doors() == []
        assert again.ends() == []
        assert again.lives() == []
        await again.begin_life()
        assert len(again.lives()) == 1


async def test_calls_of_older_versions_say_nothing_of_cells(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    older = {
        name: value for name, value in msgspec.to_builtins(a_call()).items() if name != "cells"
    }
    with RunStore(path) as store:
        await store.record(msgspec.structs.replace(a_call("e2"), cells=[1, 0]))
        row = ("e1", 0, msgspec.msgpack.encode(older))
        await store._writer.write(("INSERT INTO calls VALUES (?, ?, ?)", row))
        assert store.calls("e1") == [a_call()]
        assert store.calls("e1")[0].cell is None
        assert [(call.cells, call.cell) for call in store.calls("e2")] == [([1, 0], 0)]


async def test_each_process_goes_on_after_the_last_time_that_another_one_recorded(
    tmp_path: Path,
) -> None:
    """A call whose execution never ends is a sign of life too."""
    with RunStore(tmp_path / "run.sqlite") as store:
        await store.begin_life()
        await store.put_event(EventRow(at=3.0, kind="phase", fields={"name": "training"}))
        await store.record(msgspec.structs.replace(a_call(), ended_at=8.0))
        await store.put_event(EventRow(at=5.0, kind="role", fields={"cell": 0.0}))
        assert store.lives() == [LifeRow(began=0.0, alive=8.0)]
    with RunStore(tmp_path / "run.sqlite") as again:
        assert again.last_second() == 8.0
        await again.begin_life()
        await again.put_event(EventRow(at=9.5, kind="phase", fields={"name": "training"}))
        assert again.lives() == [LifeRow(began=0.0, alive=8.0), LifeRow(began=8.0, alive=9.5)]


async def test_a_refused_call_is_no_sign_of_life(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        await store.begin_life()
        await store.record(a_call())
        with pytest.raises(StoreError):
            await store.record(msgspec.structs.replace(a_call(), ended_at=50.0))
        assert store.last_second() == 1.0
