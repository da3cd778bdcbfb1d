"""Where a run keeps what: one folder, one layout.

Invariant: a run folder has at most one live process; the private folder's lock proves it.
"""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opengyre.core.errors import TransferError, UserError
from opengyre.transfer.folder import NAME_DIGITS, ShmDir


@dataclass(frozen=True)
class RunPaths:
    """The run folder and the places in it."""

    folder: Path
    _private: ShmDir

    @staticmethod
    def make(folder: Path) -> "RunPaths":
        """Creates both folders, and removes what a killed run left in the private one.

        Raises UserError when they cannot be made, or a live run owns them.
        """
        try:
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"to write the run folder {folder}", str(error), "free space or set run.folder"
            ) from error
        whose = f"private:{os.getuid()}:{folder.resolve()}"
        digest = hashlib.sha256(whose.encode()).hexdigest()[:NAME_DIGITS]
        try:
            private = ShmDir(Path(tempfile.gettempdir()) / f"opengyre-{digest}")
        except TransferError as error:
            raise UserError(
                f"the run folder {folder} for one run alone",
                f"its private folder taken ({error})",
                "stop the run that uses it, or choose another folder",
            ) from error
        paths = RunPaths(folder.resolve(), private)
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

    def remove_private(self) -> None:
        """Idempotent."""
        self._private.close()
