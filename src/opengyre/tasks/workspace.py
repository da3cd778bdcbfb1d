"""Workspaces: made from a task folder, preserved after an agent.

Invariant: a copy never follows a link and holds nothing but folders, plain files and links, so
that whatever an agent leaves behind (a link to /etc, a pipe, a device) reads nothing of the host;
permissions and times are kept, set-user-id bits are not.
"""

import asyncio
import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from opengyre.core.errors import SandboxError
from opengyre.sandbox.base import Bind, Command, Sandbox
from opengyre.tasks.base import Task

MOST_ENTRIES = 200_000
"""Files and folders of a preserved workspace: far more than a large repository with its history."""
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


async def preserve(workspace: Path, into: Path, max_bytes: int = DEFAULT_BYTES) -> None:
    """Copy a workspace, in which nothing runs any more, to the new folder into.

    Raises SandboxError when it is larger than max_bytes or cannot be read.
    """
    await asyncio.to_thread(_guarded_copy, workspace, into, max_bytes)


async def discard(folder: Path) -> None:
    """Delete a copy, whatever permissions its contents have."""
    await asyncio.to_thread(_delete, folder)


def _copy_steps(task: Task, into: Path) -> None:
    into.mkdir(parents=True)
    for step in task.copies:
        target = into / step.target
        if step.source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            _guarded_copy(step.source, target, DEFAULT_BYTES)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(step.source, target)


def _guarded_copy(source: Path, into: Path, max_bytes: int) -> None:
    copy = _Copy(max_bytes)
    try:
        copy.tree(source, into)
    except OSError as error:
        raise SandboxError(f"the workspace {source} could not be copied: {error}") from error
    finally:
        copy.settle()


@dataclass
class _Copy:
    """One walk. Folders are opened to us on the way and get their permissions back at the end."""

    bytes_left: int
    entries_left: int = MOST_ENTRIES
    modes: list[tuple[str, int]] = field(default_factory=list)

    def tree(self, source: Path, into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        waiting = [(str(source), str(into))]
        while waiting:
            here, there = waiting.pop()
            with os.scandir(here) as entries:
                for entry in entries:
                    self._count(1, 0)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(self._folder(entry, f"{there}/{entry.name}"))
                    else:
                        self._leaf(entry, f"{there}/{entry.name}")

    def settle(self) -> None:
        """Permissions last, the deepest first: a folder without them cannot be filled."""
        while self.modes:
            path, mode = self.modes.pop()
            with suppress(OSError):
                os.chmod(path, mode)  # noqa: PTH101 — paths here are plain strings, for speed

    def _folder(self, entry: os.DirEntry[str], target: str) -> tuple[str, str]:
        mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
        self.modes.append((target, mode & 0o777))
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(entry.path, mode | stat.S_IRWXU)  # noqa: PTH101
            self.modes.append((entry.path, mode))
        return entry.path, target

    def _leaf(self, entry: os.DirEntry[str], target: str) -> None:
        seen = entry.stat(follow_symlinks=False)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)  # noqa: PTH115, PTH211
        elif stat.S_ISREG(seen.st_mode):
            self._count(0, seen.st_size)
            mode = stat.S_IMODE(seen.st_mode)
            if not mode & stat.S_IRUSR:
                os.chmod(entry.path, mode | stat.S_IRUSR)  # noqa: PTH101
                self.modes.append((entry.path, mode))
            shutil.copyfile(entry.path, target, follow_symlinks=False)
            os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            os.chmod(target, mode & 0o777)  # noqa: PTH101

    def _count(self, entries: int, size: int) -> None:
        self.entries_left -= entries
        self.bytes_left -= size
        if self.entries_left < 0 or self.bytes_left < 0:
            raise SandboxError(
                "the workspace is larger than may be preserved (sandbox.workspace_mb, "
                f"or {MOST_ENTRIES} entries)"
            )


def _delete(folder: Path) -> None:
    for here, _, _ in os.walk(folder):
        for entry in os.scandir(here):
            if entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    os.chmod(entry.path, stat.S_IRWXU)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)
