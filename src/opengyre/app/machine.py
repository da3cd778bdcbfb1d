"""What figures were measured on, and with which code."""

import os
import platform
import subprocess
from pathlib import Path

from opengyre import __version__


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""

    return {
        "cpus": os.cpu_count() or 0,
        "processor": platform.machine(),
        "python": platform.python_version(),
        "opengyre": __version__,
        "commit": commit(),
    }


def commit() -> str:
    """The checkout's commit, or "unknown" outside of one."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
