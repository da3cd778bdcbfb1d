"""What runs in a sandbox and what came of it.

Invariant: when run() returns, or is cancelled, no process of the command is alive.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

TAIL_BYTES = 64 * 1024
"""Kept of each output stream: a harness's closing JSON fits, a chatty build cannot fill memory."""


@dataclass(frozen=True)
class Bind:
    """A file, folder or socket of the host that the command sees."""

    source: Path
    target: str
    """Absolute path inside."""
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class Command:
    """One program to run."""

    argv: list[str]
    cwd: str
    """Absolute path inside."""
    timeout_s: float
    env: dict[str, str] = field(default_factory=dict)
    """The whole environment, but for PATH, HOME and LANG, which have defaults."""
    binds: list[Bind] = field(default_factory=list)
    """Parents before what lies inside them."""
    stdout_limit: int = TAIL_BYTES
    stderr_limit: int = TAIL_BYTES


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the program ended."""

    exit_code: int | None
    """None when it was killed for its time limit; 128 + n when signal n ended it."""
    timed_out: bool
    oom: bool
    """The memory limit killed at least one of its processes."""
    stdout: bytes
    """The last stdout_limit bytes."""
    stderr: bytes
    """The last stderr_limit bytes."""
    seconds: float


class Sandbox(Protocol):
    """Runs commands apart from the machine. bubblewrap.py does, none.py only says so."""

    @property
    def private_network(self) -> bool:
        """Whether 127.0.0.1 is the command's own, so that any port is free."""
        ...

    async def run(self, command: Command) -> Outcome:
        """Run to the end or to the limit; cancelling kills everything.

        Raises SandboxError when the program could not be started.
        """
        ...
