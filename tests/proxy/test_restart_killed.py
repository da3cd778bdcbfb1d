"""A real proxy process, killed with SIGKILL again and again in the middle of a run."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from opengyre.app.wall import WallClock
from opengyre.core.reasons import FinishReason
from opengyre.core.records import Call
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree
from tests.proxy.conftest import KEY, fold

TURNS = 5
KILLS = 4
PROGRAM = [sys.executable, "-m", "tests.proxy.proxy_process"]


def begin(folder: Path, version: int) -> "subprocess.Popen[bytes]":
    folder.mkdir(exist_ok=True)
    place = [str(folder / "run.sqlite"), str(folder / "proxy.sock"), str(version)]
    return subprocess.Popen(
        [*PROGRAM, *place], env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=Path.cwd()
    )


async def converse(folder: Path) -> list[Any]:
    """A client that asks again until it is answered."""
    messages: list[Any] = [{"role": "user", "content": "Begin"}]
    told: list[Any] = []
    for turn in range(TURNS):
        while len(told) == turn:
            answer = await once(folder, {"model": "m", "messages": messages})
            if answer is None:
                await WallClock().sleep(0.02)
            else:
                told.append(answer)
        content = told[-1]["content"]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
            for block in content
            if block["type"] == "tool_use"
        ]
        said = results or [{"type": "text", "text": f"Go on {turn}"}]
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": said},
        ]
    return told


async def once(folder: Path, body: Any) -> Any:
    connector = aiohttp.UnixConnector(str(folder / "proxy.sock"))
    try:
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(
                "http://door/run/e1/v1/messages", json=body, headers={"x-api-key": KEY}
            ) as response,
        ):
            return await response.json() if response.status == 200 else None
    except (aiohttp.ClientError, OSError):
        return None


async def run(folder: Path, kills: list[float]) -> tuple[list[Any], list[Call]]:
    """What the client was told, and what was recorded."""
    proxy = begin(folder, 0)
    try:
        client = asyncio.ensure_future(converse(folder))
        for version, pause in enumerate(kills, start=1):
            while not (folder / "proxy.sock").is_socket():
                await WallClock().sleep(0.01)
            await asyncio.wait([client], timeout=pause)
            proxy.kill()
            proxy.wait()
            (folder / "proxy.sock").unlink(missing_ok=True)
            proxy = begin(folder, version)
        told = await client
    finally:
        proxy.kill()
        proxy.wait()
    with RunStore(folder / "run.sqlite") as store:
        return told, store.calls("e1")


def shape(calls: list[Call]) -> list[Any]:
    return [
        (fold(calls, call.call_id), call.output_ids, call.fork, call.finish, call.role)
        for call in calls
    ]


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_proxy_killed_in_mid_run_leaves_the_tree_of_one_that_was_not(
    tmp_path: Path,
) -> None:
    chance = random.Random(3)
    calm_told, calm = await run(tmp_path / "calm", [])
    kills = [chance.uniform(0.02, 0.25) for _ in range(KILLS)]
    told, calls = await run(tmp_path / "rough", kills)
    assert shape(calls) == shape(calm)
    assert [call.finish for call in calls] == [FinishReason.STOP] * TURNS
    assert [one["usage"] for one in told] == [one["usage"] for one in calm_told]
    assert [one["id"] for one in told] == [f"msg_{call.call_id}" for call in calls]
    for call in calls:
        assert call.versions[0].start == 0
        assert call.versions[-1].end == len(call.output_ids) == len(call.output_logprobs)
    tree = ExecutionTree()
    for call in calls:
        tree.add(call)
    with RunStore(tmp_path / "rough" / "run.sqlite") as store:
        (door,) = store.journal.open_doors()
    assert door.unfinished == []
