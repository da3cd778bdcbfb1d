"""Where results go. Invariant: what cannot be written is told before anything is computed."""

from pathlib import Path

from opengyre.core.errors import UserError


def check_outputs(**files: Path | None) -> None:
    """By option. Makes their folders. Raises UserError for one that cannot be written."""
    named = {f"--{option}": path for option, path in files.items() if path is not None}
    if len({path.resolve() for path in named.values()}) < len(named):
        raise UserError("a file for each", " and ".join(named) + " with one", "name another file")
    for option, path in named.items():
        _check(option, path)


def _check(option: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        with path.open("ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise UserError(
            f"to write {path}", str(error), f"name another file with {option}"
        ) from error
