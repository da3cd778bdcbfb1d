"""Without a sandbox: a warning, paths of the host, and still nothing left alive."""

import asyncio
import logging
from pathlib import Path

import pytest

from opengyre.app.wall import WallClock
from opengyre.config.run import SandboxSection
from opengyre.sandbox.base import Sandbox
from opengyre.sandbox.make import make_sandbox
from opengyre.sandbox.none import on_host
from tests.sandbox.conftest import alive, shell, until


@pytest.fixture
def plain() -> Sandbox:
    return make_sandbox(SandboxSection.model_validate({"kind": "none"}), WallClock())


async def test_it_warns_once(
    plain: Sandbox, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await plain.run(shell("true", workspace))
        await plain.run(shell("true", workspace))
    assert ["sandbox.kind" in record.message for record in caplog.records] == [True]


async def test_paths_become_those_of_the_host(plain: Sandbox, workspace: Path) -> None:
    outcome = await plain.run(shell("echo hi > /app/out.txt; pwd; exit 3", workspace))
    assert outcome.exit_code == 3
    assert outcome.stdout.decode().strip() == str(workspace)
    assert (workspace / "out.txt").read_text() == "hi\n"


async def test_a_time_limit_ends_processes_that_left_the_session(
    plain: Sandbox, workspace: Path
) -> None:
    outcome = await plain.run(shell("setsid sleep 4721 & sleep 4721", workspace, timeout_s=0.5))
    assert (outcome.exit_code, outcome.timed_out) == (None, True)
    assert not alive("4721")


async def test_cancelling_kills_everything(plain: Sandbox, workspace: Path) -> None:
    running = asyncio.ensure_future(plain.run(shell("touch ready; sleep 4722", workspace)))
    await until(workspace / "ready")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive("4722")


def test_only_whole_paths_are_rewritten() -> None:
    places = {"/app": Path("/h/w"), "/app/data": Path("/h/d")}
    text = "see /app/x, /app/data/y, /apple, /my/app and /app"
    assert on_host(text, places) == "see /h/w/x, /h/d/y, /apple, /my/app and /h/w"
