"""A small policy, made once a test session."""

from pathlib import Path

from rich.console import Console

from opengyre.app.warmstart.make import make_policy


def small_policy(folder: Path) -> Path:
    """A policy that barely learnt the format: real weights, real vocabulary, seconds to make."""
    make_policy(folder, seed=0, traces=64, epochs=2, console=Console(quiet=True))
    return folder
