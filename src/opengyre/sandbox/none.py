"""No sandbox: the command runs on the machine as the user who started the run.

Invariant: every process that still carries this run's mark is killed at the end; a program that
hides from that is not contained, which is why this is only for programs that one trusts.
"""

import itertools
import logging
import os
import re
import signal
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from opengyre.core.protocols import Clock
from opengyre.sandbox.base import Command, Outcome
from opengyre.sandbox.launch import Streams, kill_group, spawn
from opengyre.sandbox.pipes import Tail
from opengyre.sandbox.waiting import within

MARK = "OPENGYRE_UNSANDBOXED"
"""Variable that tells a run's processes, even those that left its session."""
DRAIN_S = 1.0
"""How long to wait for output held open by processes that escaped."""
RESTRAIN = 'ulimit -c 0; ulimit -d "$1" || exit 125; shift; exec "$@"'
"""Data size per process. A process limit would count all processes of the user: left out."""

log = logging.getLogger(__name__)
_counter = itertools.count(1)


class NoSandbox:
    """Runs each command plainly, with the paths of its binds rewritten to those of the host."""

    private_network = False

    def __init__(self, memory_bytes: int, clock: Clock) -> None:
        self._memory_bytes = memory_bytes
        self._clock = clock
        self._warned = False

    async def run(self, command: Command) -> Outcome:
        self._warn()
        started_at = self._clock.now()
        mark = f"{os.getpid()}-{next(_counter)}"
        streams = Streams(Tail(command.stdout_limit), Tail(command.stderr_limit))
        try:
            with TemporaryDirectory(prefix="opengyre-home-") as home:
                exit_code = await self._follow(command, streams, mark, home)
        finally:
            streams.close()
        return Outcome(
            exit_code=exit_code,
            timed_out=exit_code is None,
            oom=False,
            stdout=streams.stdout.text(),
            stderr=streams.stderr.text(),
            seconds=self._clock.now() - started_at,
        )

    async def _follow(self, command: Command, streams: Streams, mark: str, home: str) -> int | None:
        places = {bind.target: bind.source for bind in command.binds}
        inner = [on_host(word, places) for word in command.argv]
        env = {name: on_host(value, places) for name, value in command.env.items()}
        argv = ["/bin/sh", "-c", RESTRAIN, "sh", str(self._memory_bytes // 1024), *inner]
        ours = {"PATH": os.environ.get("PATH", os.defpath), "HOME": home, "LANG": "C.UTF-8"}
        env = {**ours, **env, MARK: mark}
        process = await spawn(argv, env, on_host(command.cwd, places), streams)
        streams.start()
        try:
            ended = await within(process.wait(), command.timeout_s, self._clock)
        finally:
            kill_group(process)
            kill_marked(mark)
            code = await process.wait()
        await within(streams.ended(), DRAIN_S, self._clock)
        if not ended:
            return None
        return code if code >= 0 else 128 - code

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "sandbox.kind = none: agents run on this machine as user %d, with its files and "
                "its network; use it only for programs that you trust",
                os.getuid(),
            )


def on_host(text: str, places: dict[str, Path]) -> str:
    """Text with paths inside the sandbox turned to those of the host, longest first."""
    for target in sorted(places, key=len, reverse=True):
        pattern = rf"(?<![\w./-]){re.escape(target)}(?![\w-])"
        text = re.sub(pattern, str(places[target]).replace("\\", r"\\"), text)
    return text


def kill_marked(mark: str) -> None:
    """Kill every process whose environment holds this mark."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and wanted in _environment(folder):
            with suppress(ProcessLookupError):
                os.kill(int(folder.name), signal.SIGKILL)


def _environment(folder: Path) -> list[bytes]:
    with suppress(OSError):
        return (folder / "environ").read_bytes().split(b"\0")
    return []
