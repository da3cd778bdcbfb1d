"""One run of an agent program, and how it ended.

Invariant: a program is told a base URL, a key and a model name, and nothing else about us.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opengyre.sandbox.base import Command

WORKDIR = "/app"
"""Where tasks of Harbor's format expect to be worked on unless they say otherwise."""
DOOR_INSIDE = "/run/opengyre/door"
"""Where the folder of the proxy's socket appears in the sandbox."""
FORWARDER_INSIDE = "/run/opengyre/forward.py"
"""Where the forwarder appears in the sandbox."""
PROGRAMS_INSIDE = "/opt/opengyre"
"""Where agent programs appear in the sandbox."""


@dataclass(frozen=True, kw_only=True)
class HarnessRun:
    """What to run, and where the model is."""

    execution_id: str
    instruction: str
    workspace: Path
    """Folder of the host that the agent changes."""
    socket: Path
    """The proxy's unix socket on the host, alone in its folder: the program sees that folder, so that
    it finds the socket of a proxy that was restarted."""
    base_path: str
    """Path in front of every API path, such as /run/EXECUTION."""
    key: str
    model: str
    timeout_s: float
    workdir: str = WORKDIR
    """Where the workspace is seen."""
    args: list[str] = field(default_factory=list)
    """More arguments for the program."""
    env: dict[str, str] = field(default_factory=dict)
    """More environment for the program; wins over the adapter's."""
    port: str = "4873"
    """Port on 127.0.0.1 inside; fixed, since the sandbox's loopback is its own."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_path}"


@dataclass(frozen=True, kw_only=True)
class HarnessOutcome:
    """How the program ended; the workspace holds what it made."""

    exit_code: int | None
    timed_out: bool
    oom: bool
    seconds: float
    stdout_tail: str
    stderr_tail: str
    started: bool
    """False when the sandbox could not be made: stderr_tail says why."""


class Harness(Protocol):
    """An agent program that is installed here. One file each."""

    def command(self, run: HarnessRun) -> Command:
        """The program with its arguments, environment and the files of its own that it needs."""
        ...
