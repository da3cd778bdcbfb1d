"""Where a run keeps what: one folder, one layout.

Invariant: a run folder has at most one live process; the lock in it proves that, whatever else the
two processes have in common.
"""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opengyre.core.errors import TransferError, UserError
from opengyre.transfer.folder import LOCK, NAME_DIGITS, OwnerLock, ShmDir


@dataclass(frozen=True)
class RunPaths:
    """The run folder and the places in it."""

    folder: Path
    _private: ShmDir
    _lock: OwnerLock

    @staticmethod
    def make(folder: Path) -> "RunPaths":
        """Creates both folders, and removes what a killed run left in the private one.

        Raises UserError when they cannot be made, or a live run owns them.
        """
        lock = _own(folder)
        whose = f"private:{os.getuid()}:{folder.resolve()}"
        digest = hashlib.sha256(whose.encode()).hexdigest()[:NAME_DIGITS]
        try:
            private = ShmDir(Path(tempfile.gettempdir()) / f"opengyre-{digest}")
        except TransferError as error:
            lock.release()
            raise _taken(folder, error) from error
        paths = RunPaths(folder.resolve(), private, lock)
        paths.socket.parent.mkdir(mode=0o700)
        return paths

    @property
    def private(self) -> Path:
        """A short-named 0700 folder for sockets and workspaces; gone after the run."""
        return self._private.path

    @property
    def store(self) -> Path:
        return self.folder / "run.sqlite"

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    @property
    def summary(self) -> Path:
        return self.folder / "summary.json"

    @property
    def socket(self) -> Path:
        """Alone in its folder, which agents see."""
        return self.private / "door" / "proxy.sock"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def workspace(self, execution_id: str) -> Path:
        return self.private / "work" / execution_id

    def clear(self) -> None:
        """Remove what an earlier run left in the run folder."""
        for left in self.folder.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            elif left.name != LOCK:
                left.unlink()

    def remove_private(self) -> None:
        """And let others have the run folder. Idempotent."""
        self._private.close()
        self._lock.release()


def _own(folder: Path) -> OwnerLock:
    """The folder, made if need be, with its lock. Raises UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return OwnerLock(folder)
    except TransferError as error:
        raise _taken(folder, error) from error
    except OSError as error:
        raise UserError(
            f"to write the run folder {folder}", str(error), "free space or set run.folder"
        ) from error


def _taken(folder: Path, error: TransferError) -> UserError:
    return UserError(
        f"the run folder {folder} for one run alone",
        f"it is taken ({error})",
        "stop the run that uses it, or choose another folder",
    )
