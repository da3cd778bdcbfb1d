"""What figures were measured on, and with which code."""

import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

from opengyre import __version__

PEAK_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of one that getrusage counts memory in."""


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""

    return {
        "cpus": os.cpu_count() or 0,
        "processor": platform.machine(),
        "python": platform.python_version(),
        "opengyre": __version__,
        "commit": commit(),
    }


def peak_bytes() -> int:
    """The most memory that this process ever occupied."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT


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
