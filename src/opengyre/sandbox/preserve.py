"""Copying what an agent made out of its workspace, without trusting any of it.

Invariant: nothing outside the workspace is read and nothing outside the copy is written; links stay
links, those that lead out of the root are left behind, and so is all that is neither file, folder
nor link. Only call this once no process of the agent is alive.
"""

import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

MAX_ENTRIES = 200_000
"""Files, folders and links: a large checkout has a tenth of that; a loop that makes files has more."""
MODE_BITS = 0o777
"""Set-user-id and its like do not travel."""


@dataclass
class Preserved:
    """What a copy holds."""

    files: int = 0
    total_bytes: int = 0
    refused: list[str] = field(default_factory=list)
    """Relative paths of links that lead out, special files and what could not be read."""
    cut: bool = False
    """A limit was reached: the copy is not whole."""


@dataclass
class _Copy:
    source: Path
    into: Path
    limit_bytes: int
    mounted_at: str
    done: Preserved = field(default_factory=Preserved)
    entries: int = 0

    def folder(self, inner: Path) -> list[Path]:
        """Copy one folder's direct content; return the folders in it."""
        found: list[Path] = []
        for entry in sorted(os.scandir(self.source / inner), key=lambda entry: entry.name):
            self.entries += 1
            if self.entries > MAX_ENTRIES:
                self.done.cut = True
            if self.done.cut:
                break
            try:
                if self._entry(inner / entry.name):
                    found.append(inner / entry.name)
            except OSError:
                self.done.refused.append(str(inner / entry.name))
        return found

    def _entry(self, inner: Path) -> bool:
        """Copy one entry; True when it is a folder."""
        info = (self.source / inner).lstat()
        if stat.S_ISDIR(info.st_mode):
            (self.into / inner).mkdir()
            return True
        if stat.S_ISLNK(info.st_mode):
            self._link(inner)
        elif stat.S_ISREG(info.st_mode):
            self._file(inner, info)
        else:
            self.done.refused.append(str(inner))
        return False

    def _file(self, inner: Path, info: os.stat_result) -> None:
        if self.done.total_bytes + info.st_size > self.limit_bytes:
            self.done.cut = True
            return
        target = self.into / inner
        handle = os.open(self.source / inner, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as reader, target.open("xb") as writer:
            shutil.copyfileobj(reader, writer)
        target.chmod(info.st_mode & MODE_BITS)
        os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))
        self.done.files += 1
        self.done.total_bytes += info.st_size

    def _link(self, inner: Path) -> None:
        goal = (self.source / inner).readlink()
        if leads_out(PurePosixPath(inner), PurePosixPath(goal), self.mounted_at):
            self.done.refused.append(str(inner))
            return
        (self.into / inner).symlink_to(goal)
        self.done.files += 1


def preserve(
    workspace: Path, into: Path, limit_bytes: int, mounted_at: str | None = None
) -> Preserved:
    """Copy workspace to `into`, which is made. Absolute links under mounted_at count as inside.

    Raises FileExistsError when `into` is there, OSError when the disk is full.
    """
    into.mkdir(parents=True)
    copy = _Copy(workspace, into, limit_bytes, mounted_at or "")
    waiting = [Path()]
    folders: list[Path] = []
    while waiting and not copy.done.cut:
        inner = waiting.pop()
        folders.append(inner)
        try:
            waiting += reversed(copy.folder(inner))
        except OSError:
            copy.done.refused.append(str(inner))
    for inner in reversed(folders):
        (into / inner).chmod(stat.S_IMODE((workspace / inner).lstat().st_mode) & MODE_BITS)
    return copy.done


def leads_out(link: PurePosixPath, goal: PurePosixPath, mounted_at: str) -> bool:
    """Whether a link at this relative path may point outside the root, read as text alone.

    Going up is allowed at the start only, where each step is a real folder: after a name, which
    may itself be a link, ".." could lead anywhere. All links being held to this, none leads out.
    """
    if goal.is_absolute():
        if not mounted_at or not goal.is_relative_to(mounted_at):
            return True
        return ".." in goal.parts
    ups = 0
    while ups < len(goal.parts) and goal.parts[ups] == "..":
        ups += 1
    return ups > len(link.parent.parts) or ".." in goal.parts[ups:]
