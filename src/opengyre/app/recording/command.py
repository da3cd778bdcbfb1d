"""What `opengyre proxy` does on a terminal."""

from pathlib import Path

from rich.console import Console

from opengyre.app.paths import RunPaths
from opengyre.app.recording.options import RecordingOptions
from opengyre.app.recording.record import Place, record
from opengyre.app.stopping import until_done
from opengyre.app.wall import RandomIds


def run_recording(options: RecordingOptions, out: Path, key: str | None) -> None:
    """Record into that folder until ctrl-C."""
    paths = RunPaths.make(out)
    try:
        place = Place(paths, Console(), RandomIds(), key)
        until_done(record(options, place), "stopped; the same command goes on")
    finally:
        paths.remove_private()
