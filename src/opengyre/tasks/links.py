"""Symbolic links in task folders.

Invariant: nothing that is read or copied from a task folder lies outside of it.
"""

import os
from pathlib import Path

from opengyre.core.errors import UserError


def inside(path: Path, root: Path) -> Path:
    """path, if it resolves to a place inside root. Raises UserError."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise UserError(
            f"{path} inside {root}",
            f"a link to {path.resolve()}",
            "put a copy of the file into the task folder",
        )
    return path


def all_inside(root: Path) -> None:
    """Every entry below root resolves to a place inside it. Raises UserError."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder) / name
            if path.is_symlink():
                inside(path, root)
