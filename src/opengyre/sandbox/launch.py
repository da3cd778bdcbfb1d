"""Starting one sandboxed process and following it to its end.

Invariant: `finish` leaves neither the process nor anything of its group or namespace alive.
"""

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from contextlib import suppress
from dataclasses import dataclass

from opengyre.core.errors import SandboxError
from opengyre.sandbox.pipes import Tail
from opengyre.sandbox.waiting import open_pidfd, process_gone


@dataclass
class Streams:
    """The pipes of one process."""

    stdout: Tail
    stderr: Tail

    def start(self) -> None:
        self.stdout.start()
        self.stderr.start()

    async def ended(self) -> None:
        await self.stdout.ended()
        await self.stderr.ended()

    def close(self) -> None:
        self.stdout.close()
        self.stderr.close()


async def spawn(
    argv: list[str], env: dict[str, str], cwd: str, streams: Streams, keep: tuple[int, ...] = ()
) -> Process:
    """Start argv as the leader of its own session. Raises SandboxError."""
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=DEVNULL,
            stdout=streams.stdout.writer,
            stderr=streams.stderr.writer,
            env=env,
            cwd=cwd,
            start_new_session=True,
            pass_fds=keep,
        )
    except OSError as error:
        raise SandboxError(f"could not start {argv[0]}: {error}") from error


def kill_group(process: Process) -> None:
    """Kill the process and all of its session that did not leave it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Namespace:
    """bwrap's report on its pid namespace, from the pipe given as --json-status-fd."""

    def __init__(self) -> None:
        self.report = Tail(4096, self._heard)
        self.exit_code: int | None = None
        self._lines = b""
        self._pidfd: int | None = None

    def start(self) -> None:
        self.report.start()

    async def kill(self) -> None:
        """Kill the first process inside, and return once the kernel has ended all the others."""
        if self._pidfd is None:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        await process_gone(self._pidfd)

    def close(self) -> None:
        self.report.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _heard(self, piece: bytes) -> None:
        *lines, self._lines = (self._lines + piece).split(b"\n")
        for line in lines:
            self._note(json.loads(line))

    def _note(self, status: dict[str, int]) -> None:
        if "child-pid" in status:
            self._pidfd = open_pidfd(status["child-pid"])
        if "exit-code" in status:
            self.exit_code = status["exit-code"]
