"""Every command is answered once: by the cell, or by its death."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from opengyre.cluster import wire
from opengyre.cluster.base import CellLostError
from opengyre.cluster.link import LONG_PATIENCE_S, PATIENCE_S, CellLink
from opengyre.core.errors import LearnerError
from opengyre.core.records import TokenChunk
from tests.cluster.conftest import HandClock, micro_step, request

SNAPSHOT = wire.Snapshot("weights-0", 0)
SAVE = wire.Save(root="", step=0, version=0, keep=1, snapshot=SNAPSHOT)


class Scripted:
    """A link to a scripted cell, and what it reported."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.chunks: list[TokenChunk] = []
        self.lost: list[int] = []
        self.log = folder / "cell-3.log"
        program = "tests.cluster.scripted_cell"
        self.link = CellLink(3, self.clock, self.chunks.extend, self.lost.append, program)


@pytest_asyncio.fixture
async def scripted(tmp_path: Path) -> AsyncIterator[Scripted]:
    made = Scripted(tmp_path)
    await made.link.start(sorted(os.sched_getaffinity(0))[:1], 1, made.log)
    yield made
    await made.link.close()


async def test_tokens_come_in_order_between_answers(scripted):
    await scripted.link.ask(wire.Generate(request=request("a", tokens=50)), wire.Accepted)
    while len(scripted.chunks) < 50:
        await scripted.link.ask(wire.Ping(), wire.Done)
    assert [c.request_id for c in scripted.chunks] == ["a"] * 50
    await scripted.link.ask(wire.Ping(), wire.Done)
    assert len(scripted.chunks) == 50


async def test_a_failing_handler_raises_its_error_and_the_cell_lives(scripted):
    with pytest.raises(LearnerError, match="cell 3: the disk is full"):
        await scripted.link.ask(SAVE, wire.Saved)
    await scripted.link.ask(wire.Ping(), wire.Done)
    assert scripted.lost == []
    assert "LearnerError" in scripted.log.read_text()


async def test_a_crash_fails_all_that_was_asked_and_is_in_the_log(scripted):
    crash = scripted.link.ask(wire.LoadVersion(version=1, snapshot=SNAPSHOT), wire.Loaded)
    after = scripted.link.ask(wire.Ping(), wire.Done)
    results = await asyncio.gather(crash, after, return_exceptions=True)
    assert [type(r) for r in results] == [CellLostError, CellLostError]
    assert scripted.lost == [3]
    with pytest.raises(CellLostError):
        await scripted.link.ask(wire.Ping(), wire.Done)
    await scripted.link.close()
    assert "ZeroDivisionError" in scripted.log.read_text()


async def test_a_killed_cell_is_lost_without_any_probe(scripted):
    os.kill(scripted.link.pid, signal.SIGKILL)
    with contextlib.suppress(CellLostError):
        while True:
            await scripted.link.ask(wire.Ping(), wire.Done)
    assert scripted.lost == [3]


async def test_a_wedged_cell_is_lost_after_its_patience_and_not_before(scripted):
    await scripted.link.ask(wire.Ping(), wire.Done)
    hung = asyncio.ensure_future(scripted.link.ask(wire.Pause(), wire.Done))
    await asyncio.wait([hung], timeout=0)
    scripted.clock.advance(PATIENCE_S)
    scripted.link.probe()
    assert scripted.lost == []
    scripted.clock.advance(1)
    scripted.link.probe()
    with pytest.raises(CellLostError):
        await hung
    assert scripted.lost == [3]


async def test_a_long_command_gets_long_patience(scripted):
    os.kill(scripted.link.pid, signal.SIGSTOP)
    micro = wire.Accumulate(micro=micro_step("m", seed=1))
    working = asyncio.ensure_future(scripted.link.ask(micro, wire.Accumulated))
    await asyncio.wait([working], timeout=0)
    scripted.clock.advance(LONG_PATIENCE_S)
    scripted.link.probe()
    assert scripted.lost == []
    scripted.clock.advance(1)
    scripted.link.probe()
    with pytest.raises(CellLostError):
        await working


async def test_an_idle_cell_is_pinged(scripted):
    os.kill(scripted.link.pid, signal.SIGSTOP)
    scripted.link.probe()
    scripted.clock.advance(PATIENCE_S + 1)
    scripted.link.probe()
    assert scripted.lost == [3]
