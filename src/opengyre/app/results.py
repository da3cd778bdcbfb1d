"""The results of a command as a file."""

import json
from pathlib import Path

from opengyre.core.errors import UserError


def write_json(results: object, path: Path) -> None:
    """Raises UserError when the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"to write {path}", str(error), "name another file with --json") from error
