"""The private folder of a run's shared memory.

Invariant: at most one live process owns a folder (an flock that dies with it), so whatever lies in
the folder when a new owner arrives is a crashed run's leftovers and is removed.
"""

import fcntl
import hashlib
import os
import shutil
import stat
from pathlib import Path

from opengyre.core.errors import TransferError

MEMORY = Path("/dev/shm")
"""Linux's shared memory: files that never reach a disk."""
NAME_DIGITS = 16
"""Hex digits of the run's hash in the folder's name: 64 bits do not collide on one machine."""
LOCK = "owner.lock"


class ShmDir:
    """A 0700 folder for shared tensors and KV blobs; removed by close()."""

    def __init__(self, path: Path) -> None:
        """Create `path`, removing a dead owner's leftovers.

        Raises TransferError when it belongs to someone else or a live process owns it.
        """
        self.path = path
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            _check_ours(path)
        except OSError as error:
            raise TransferError(
                f"wanted a private folder at {path}; found {error}; free some space there"
            ) from error
        self._lock = OwnerLock(path)
        self._open = True
        for leftover in path.iterdir():
            if leftover.name != LOCK:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()

    @classmethod
    def for_run(cls, run_folder: Path, memory: Path = MEMORY) -> "ShmDir":
        """The folder of one run: in `memory` where that is writable, else inside the run's folder."""
        digest = hashlib.sha256(f"{os.getuid()}:{run_folder.resolve()}".encode()).hexdigest()
        writable = memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)
        if not writable:
            return cls(run_folder / "shm")
        return cls(memory / f"opengyre-{digest[:NAME_DIGITS]}")

    def close(self) -> None:
        """Remove the folder with all it holds. Idempotent."""
        if not self._open:
            return
        self._open = False
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()

    def __enter__(self) -> "ShmDir":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OwnerLock:
    """Held by one live process for a folder; the kernel releases it however that process ends."""

    def __init__(self, folder: Path) -> None:
        """Raises TransferError when a live process holds it, OSError when there is no such folder."""
        self._file: int | None = _take_lock(folder)

    def release(self) -> None:
        """Idempotent. The file stays: removing it would let two processes lock two files."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _check_ours(path: Path) -> None:
    """/dev/shm is writable by all: never follow a link or use another user's folder."""
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise TransferError(
            f"wanted a private folder at {path}; found something of another kind or owner; remove it"
        )
    path.chmod(0o700)


def _take_lock(path: Path) -> int:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise TransferError(
            f"wanted to own {path}; found that a live run owns it; stop that run first"
        ) from error
    return lock
