"""One real sandbox and short words for running shell scripts in it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from opengyre.app.wall import WallClock
from opengyre.config.run import SandboxSection
from opengyre.sandbox.base import Bind, Command, Outcome, Sandbox
from opengyre.sandbox.make import make_sandbox

Script = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def sandbox() -> Sandbox:
    return make_sandbox(
        SandboxSection.model_validate({"memory_mb": 128, "processes": 48}), WallClock()
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def script(sandbox: Sandbox, workspace: Path) -> Script:
    async def run(text: str, timeout_s: float = 20.0, **more: Any) -> Outcome:
        return await sandbox.run(shell(text, workspace, timeout_s, **more))

    return run


def shell(text: str, workspace: Path, timeout_s: float = 20.0, **more: Any) -> Command:
    return Command(
        argv=["/bin/sh", "-c", text],
        cwd="/app",
        timeout_s=timeout_s,
        binds=[Bind(workspace, "/app", writable=True)],
        **more,
    )


def alive(argument: str) -> bool:
    """Whether any process of this machine has this argument."""
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if argument.encode() in words:
            return True
    return False


async def until(file: Path) -> None:
    clock = WallClock()
    while not await asyncio.to_thread(file.exists):
        await clock.sleep(0.01)
