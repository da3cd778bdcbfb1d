"""Workspaces: made from a task folder, preserved after an agent.

Invariant: what an agent left is copied only by sandbox/preserve.py, which trusts none of it; a
copy that would not be whole is an error.
"""

import asyncio
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from opengyre.core.errors import SandboxError
from opengyre.sandbox.base import Bind, Command, Sandbox
from opengyre.sandbox.preserve import Preserved, preserve
from opengyre.tasks.base import Task

DEFAULT_BYTES = 1024 * 1024 * 1024
"""As config's sandbox.workspace_mb."""
ANY_SIZE = 2**63
"""For a copy of a copy, whose size was seen to."""
SETUP = "/setup"
"""Where the task's environment folder is while setup.sh runs."""


async def materialise(task: Task, into: Path, sandbox: Sandbox) -> None:
    """Make the workspace that an agent starts from in the new folder into.

    Raises SandboxError when it cannot be made or its set-up script fails.
    """
    await asyncio.to_thread(_copy_steps, task, into)
    if task.setup is None:
        return
    outcome = await sandbox.run(
        Command(
            argv=["bash", f"{SETUP}/{task.setup.name}"],
            cwd=task.workdir,
            timeout_s=task.setup_timeout_s,
            env=task.env,
            binds=[Bind(task.setup.parent, SETUP), Bind(into, task.workdir, writable=True)],
        )
    )
    if outcome.exit_code != 0:
        how = "ran out of time" if outcome.timed_out else f"ended with {outcome.exit_code}"
        said = outcome.stderr[-500:].decode(errors="replace").strip()
        raise SandboxError(f"the set-up script {task.setup} {how}: {said}")


class WorkspaceTooLargeError(SandboxError):
    """The agent left more than may be preserved: its own doing, not a fault of ours."""


async def snapshot(task: Task, workspace: Path, into: Path, max_bytes: int) -> Preserved:
    """Copy a workspace, in which nothing runs any more, to the new folder into.

    Raises WorkspaceTooLargeError beyond max_bytes, SandboxError when it cannot be copied.
    """
    try:
        done = await asyncio.to_thread(preserve, workspace, into, max_bytes, task.workdir)
    except OSError as error:
        raise SandboxError(f"the workspace {workspace} could not be copied: {error}") from error
    if done.cut:
        raise WorkspaceTooLargeError(
            f"the workspace is larger than the {max_bytes} bytes that are preserved "
            "(sandbox.workspace_mb), or has too many files"
        )
    return done


async def discard(folder: Path) -> None:
    """Delete a copy, whatever permissions its contents have."""
    await asyncio.to_thread(_delete, folder)


def _copy_steps(task: Task, into: Path) -> None:
    into.mkdir(parents=True)
    for step in task.copies:
        target = into / step.target
        if step.source.is_dir():
            shutil.copytree(step.source, target, symlinks=True, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(step.source, target)


def _delete(folder: Path) -> None:
    for here, folders, _ in os.walk(folder):
        for inner in (Path(here) / name for name in folders):
            if not inner.is_symlink():
                with suppress(OSError):
                    inner.chmod(stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
