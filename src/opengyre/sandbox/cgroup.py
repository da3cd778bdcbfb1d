"""Memory and process limits of a sandbox by control groups, version 1 or 2.

Invariant: a group made here is removed when its block ends. Where a controller cannot be used,
its limit falls to rlimits: no process file is listed for it.
"""

import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opengyre.core.errors import SandboxError

log = logging.getLogger(__name__)
_counter = itertools.count(1)


@dataclass(frozen=True)
class Controllers:
    """Where groups can be made: parent folders, None where there is none."""

    memory: Path | None
    pids: Path | None
    version: int


@dataclass(frozen=True)
class Group:
    """The groups of one sandbox."""

    memory: Path | None
    pids: Path | None
    version: int

    @property
    def process_files(self) -> list[Path]:
        """Files that a process writes its id to in order to join."""
        folders = dict.fromkeys(f for f in (self.memory, self.pids) if f is not None)
        return [folder / "cgroup.procs" for folder in folders]

    def oom_kills(self) -> int:
        """Processes that the memory limit killed so far."""
        if self.memory is None:
            return 0
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        for line in (self.memory / name).read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
        return 0


def find_controllers(
    membership: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")
) -> Controllers:
    """The places where this process may make groups of its own."""
    lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    if "memory" in paths or "pids" in paths:
        memory, pids = (_version_1_parent(mount, name, paths) for name in ("memory", "pids"))
        return Controllers(memory, pids, 1)
    parent = _version_2_parent(mount, paths.get("", "/"))
    return Controllers(parent, parent, 2)


@contextmanager
def grouped(controllers: Controllers, memory_bytes: int, processes: int) -> Iterator[Group]:
    """A group with these limits for the length of the block; all its processes must end in it.

    Raises SandboxError when the kernel refuses the group.
    """
    name = f"opengyre-{os.getpid()}-{next(_counter)}"
    parents = (controllers.memory, controllers.pids)
    memory, pids = (parent / name if parent is not None else None for parent in parents)
    folders = list(dict.fromkeys(f for f in (memory, pids) if f is not None))
    made: list[Path] = []
    try:
        try:
            for folder in folders:
                folder.mkdir()
                made.append(folder)
            _limit(memory, pids, controllers.version, memory_bytes, processes)
        except OSError as error:
            raise SandboxError(f"could not make the control group {name}: {error}") from error
        yield Group(memory, pids, controllers.version)
    finally:
        for folder in made:
            _remove(folder)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        # An empty group costs nothing; an execution's outcome must not be lost to it.
        log.warning("the control group %s stays behind: %s", folder, error)


def _limit(
    memory: Path | None, pids: Path | None, version: int, memory_bytes: int, processes: int
) -> None:
    if memory is not None and version == 1:
        (memory / "memory.limit_in_bytes").write_text(str(memory_bytes))
        _write_if_there(memory / "memory.memsw.limit_in_bytes", str(memory_bytes))
    elif memory is not None:
        (memory / "memory.max").write_text(str(memory_bytes))
        _write_if_there(memory / "memory.swap.max", "0")
    if pids is not None:
        (pids / "pids.max").write_text(str(processes))


def _write_if_there(file: Path, text: str) -> None:
    if file.exists():
        file.write_text(text)


def _version_1_parent(mount: Path, controller: str, paths: dict[str, str]) -> Path | None:
    folder = mount / controller / paths.get(controller, "/").lstrip("/")
    return folder if _usable(folder) else None


def _version_2_parent(mount: Path, path: str) -> Path | None:
    """Our own group's parent, or ours: the nearest that hands memory and pids to its children.

    A group with processes of its own cannot do so (but for the root), hence the parent.
    """
    own = mount / path.lstrip("/")
    for folder in (own, own.parent):
        control = folder / "cgroup.subtree_control"
        if _usable(folder) and control.is_file():
            handed = control.read_text().split()
            if "memory" in handed and "pids" in handed:
                return folder
    return None


def _usable(folder: Path) -> bool:
    return (folder / "cgroup.procs").is_file() and os.access(folder, os.W_OK)
