"""Where a run keeps what: one folder, one layout."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunPaths:
    """The run folder and the places in it."""

    folder: Path
    private: Path
    """A short-named 0700 folder for sockets and workspaces; gone after the run."""

    @staticmethod
    def make(folder: Path) -> "RunPaths":
        """Creates both folders."""
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        return RunPaths(folder.resolve(), Path(tempfile.mkdtemp(prefix="opengyre-")))

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
        return self.private / "proxy.sock"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def workspace(self, execution_id: str) -> Path:
        return self.private / "work" / execution_id

    def remove_private(self) -> None:
        shutil.rmtree(self.private, ignore_errors=True)
