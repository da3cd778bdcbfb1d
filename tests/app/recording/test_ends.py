"""An execution of a recording ends once, whatever dies meanwhile, and however many there are."""

import asyncio
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.app.recording.world import (
    FAMILY,
    USER,
    anthropic,
    options_for,
    recording,
    two_turns,
)

from opengyre.app.claim import recorded_config
from opengyre.app.recording.ending import Endings, Said, Told
from opengyre.app.recording.options import claim_recording
from opengyre.core.errors import StoreError
from opengyre.core.fakes import FakeClock
from opengyre.core.records import ExecutionRecord
from opengyre.engine.upstream.fakes import FakeSGLang
from opengyre.proxy.executions import Executions
from opengyre.proxy.refusals import Kind, Refusal
from opengyre.proxy.restore import reopen
from opengyre.store.rows import EndRow, GroupRow
from opengyre.store.run import RunStore

GOOD = {"reward": 1.0, "group": "g", "task": "t", "passed": True}
BAD = {"reward": 0.0, "group": "g", "task": "t", "passed": False}


async def test_the_same_end_again_gets_the_same_answer_also_after_a_restart(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out) as opened:
        await two_turns(opened, "a")
        told = await opened.post("a/end", GOOD)
        assert told[0] == 200
        assert told[1]["calls"] == 2
        assert await opened.post("a/end", GOOD) == told
        assert (await opened.post("a/end", BAD))[0] == 409
        assert (await opened.post("a/end", GOOD, key="another"))[0] == 401
    async with recording(options, out) as opened:
        assert await opened.post("a/end", GOOD) == told
        assert (await opened.post("a/end", {}))[0] == 409
        assert (await opened.post("a/v1/messages", anthropic([USER])))[0] == 404
    with RunStore(out / "run.sqlite") as store:
        assert [record.verdict.reward for record in store.executions()] == [1.0]


async def test_ends_that_come_together_are_weighed_together(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    async with recording(options_for(server, model), out) as opened:
        for name in "abcd":
            await two_turns(opened, name)
        ends = [opened.post(f"{name}/end", GOOD if name in "ab" else BAD) for name in "aabcd"]
        assert [status for status, _ in await asyncio.gather(*ends)] == [200] * 5
    with RunStore(out / "run.sqlite") as store:
        assert len(store.executions()) == 4
        ledgers = store.ledgers()
    assert all(ledgers[name].trained for name in "abcd")


async def test_what_was_ended_and_not_weighed_is_weighed_after_a_restart(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out) as opened:
        for name, said in (("a", GOOD), ("b", BAD)):
            await two_turns(opened, name)
            await opened.post(f"{name}/end", said)
    with RunStore(out / "run.sqlite") as store:
        before = store.ledgers()
    with closing(sqlite3.connect(out / "run.sqlite")) as file:  # as a killed proxy leaves it
        file.execute("DELETE FROM ledgers WHERE execution_id = 'b'")
        file.commit()
    async with recording(options, out):
        pass
    with RunStore(out / "run.sqlite") as store:
        assert store.ledgers() == before


async def test_an_execution_without_a_call_stays_ended(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out) as opened:
        assert (await opened.post("a/end", {}))[0] == 200
    async with recording(options, out) as opened:
        assert (await opened.post("a/v1/messages", anthropic([USER])))[0] == 404
        assert (await opened.post("a/end", {}))[0] == 200


async def test_figures_hold_what_ended_before_a_restart(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)

    def summary() -> dict[str, Any]:
        told: dict[str, Any] = json.loads((out / "summary.json").read_text())
        return {name: value for name, value in told.items() if name not in {"stopped", "server"}}

    async with recording(options, out) as opened:
        await two_turns(opened, "a")
        await two_turns(opened, "b")
        await opened.post("a/end", GOOD)
        await opened.post("b/v1/messages", {"model": "policy"})
    before = summary()
    assert (before["executions"], before["executions_ended"], before["calls"]) == (2, 1, 4)
    assert before["refused_calls"] == 1
    async with recording(options, out):
        pass
    assert summary() == before


async def test_another_key_opens_what_the_old_one_did(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out) as opened:
        messages = await two_turns(opened, "a")
        await opened.post("b/end", GOOD)
    async with recording(options, out, key="the-newer-key") as opened:
        again = anthropic([*messages, USER])
        assert (await opened.post("a/v1/messages", again, key="a-key-for-tests"))[0] == 401
        assert (await opened.post("a/v1/messages", again))[0] == 200
        assert (await opened.post("b/end", GOOD, key="a-key-for-tests"))[0] == 401
        assert (await opened.post("b/end", GOOD))[0] == 200


class WatchedStore(RunStore):
    """Says what reads its tables in the event loop, and refuses ends as a full disk does."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.full = False
        self.watched: int | None = None
        """The thread that may not read."""

    def _bodies(self, sql: str, values: tuple[str, ...] = ()) -> list[bytes]:
        assert threading.get_ident() != self.watched, sql
        return super()._bodies(sql, values)

    async def end(
        self, row: EndRow, record: ExecutionRecord | None, group: GroupRow | None
    ) -> None:
        if self.full:
            raise StoreError("no space left")
        await super().end(row, record, group)


async def endings_of(store: RunStore, model: Path, executions: Executions) -> Endings:
    options = options_for(FakeSGLang(rows=1, script=lambda _tokens: 0), model)
    await claim_recording(options, store, store.path.parent)
    config = recorded_config(store)
    assert config is not None
    return Endings(executions, store, config, FakeClock(), "command")


def said(reward: float | None = None) -> Said:
    return Said(reward=reward, group="g", task="t", passed=None, detail="")


async def test_an_end_that_the_store_refused_can_be_told_again(model: Path, tmp_path: Path) -> None:
    with WatchedStore(tmp_path / "run.sqlite") as store:
        executions = reopen(FAMILY, store.journal)
        endings = await endings_of(store, model, executions)
        door = executions.open("a", "key", harness="command", seed=0)
        store.full = True
        with pytest.raises(StoreError):
            await endings.end("a", said())
        with pytest.raises(Refusal):
            door.check_open()
        await store.journal.settled()
        assert [found.door.execution_id for found in store.journal.open_doors()] == ["a"]
        store.full = False
        assert await endings.end("a", said()) == Told(calls=0, sampled_tokens=0)
        assert store.journal.open_doors() == []


async def test_no_end_comes_between_two_proxies(model: Path, tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        executions = reopen(FAMILY, store.journal)
        endings = await endings_of(store, model, executions)
        executions.open("a", "key", harness="command", seed=0)
        await executions.suspend()
        with pytest.raises(Refusal) as found:
            await endings.end("a", said())
        assert found.value.kind is Kind.OVERLOADED
        await store.journal.settled()
        assert store.journal.open_doors()


async def test_the_event_loop_reads_nothing_of_other_executions(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    async with recording(options_for(server, model), out) as opened:
        for name in "abc":
            await two_turns(opened, name)
            await opened.post(f"{name}/end", GOOD | {"group": name})
        await two_turns(opened, "d")
    with WatchedStore(out / "run.sqlite") as store:
        executions = reopen(FAMILY, store.journal)
        endings = await endings_of(store, model, executions)
        store.watched = threading.get_ident()
        told = await endings.end("d", said(1.0))
        assert told.calls == 2
        assert await endings.end("d", said(1.0)) == told
        store.watched = None
        assert store.ledgers()["d"].balanced
        assert [row.index for row in store.groups()] == [0, 1, 2, 3]
