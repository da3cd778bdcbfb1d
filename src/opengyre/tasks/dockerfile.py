"""What a local sandbox can take from a Dockerfile: the last stage's WORKDIR and its COPYs.

Invariant: every source lies inside the environment folder and every target inside the work folder.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from opengyre.core.errors import UserError
from opengyre.tasks.base import CopyStep
from opengyre.tasks.links import inside

DEFAULT_WORKDIR = "/app"
"""Where the images that tasks are written for work."""
SILENT = {"CMD", "ENTRYPOINT", "LABEL", "EXPOSE", "STOPSIGNAL", "MAINTAINER", "SHELL"}
"""Instructions that say nothing about the workspace."""


@dataclass
class Recipe:
    """What was found."""

    workdir: str = ""
    copies: list[CopyStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_dockerfile(file: Path, workdir: str | None) -> Recipe:
    """workdir overrides the file's own. Raises UserError."""
    recipe = Recipe()
    copies: list[tuple[int, str, PurePosixPath]] = []
    here = PurePosixPath("/")
    for number, line in _instructions(file):
        name, _, rest = line.partition(" ")
        match name.upper():
            case "FROM":
                copies, here, recipe = [], PurePosixPath("/"), Recipe()
            case "WORKDIR":
                here /= _plain(file, number, rest)
                recipe.workdir = str(here)
            case "COPY" | "ADD":
                if "<<" in rest:
                    raise _fault(file, number, "COPY of files", "a here-document")
                copies.append((number, rest, here))
            case "RUN" | "ENV" | "ARG" | "USER" | "VOLUME" | "HEALTHCHECK" | "ONBUILD" as other:
                recipe.notes.append(f"{file.name} line {number}: {other} is not run locally")
            case other:
                if other not in SILENT:
                    raise _fault(file, number, "a Dockerfile instruction", repr(name))
    recipe.workdir = workdir or recipe.workdir or DEFAULT_WORKDIR
    for number, rest, at in copies:
        _copy(recipe, file, number, rest, at)
    return recipe


def _instructions(file: Path) -> list[tuple[int, str]]:
    """(line number, instruction) with continued lines joined and comments left out."""
    found: list[tuple[int, str]] = []
    held, start = "", 0
    for number, raw in enumerate(_text(file).splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        start = start if held else number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        found.append((start, held + line))
        held = ""
    return [*found, (start, held.strip())] if held.strip() else found


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"a Dockerfile at {file}", f"an unreadable file ({error})", "mend it"
        ) from error


def _copy(recipe: Recipe, file: Path, number: int, rest: str, here: PurePosixPath) -> None:
    if "--from=" in rest or re.search(r"https?://|git@", rest):
        recipe.notes.append(f"{file.name} line {number}: a COPY from elsewhere is not made locally")
        return
    *sources, last = _words(file, number, rest)
    target = here / last
    try:
        relative = target.relative_to(recipe.workdir)
    except ValueError as error:
        raise _fault(
            file, number, f"a COPY into the work folder {recipe.workdir}", f"one to {target}"
        ) from error
    found = [path for source in sources for path in _matches(file, number, source)]
    as_folder = last.endswith("/") or last in {".", ".."} or len(found) > 1 or not relative.parts
    for path in found:
        keep = relative / path.name if as_folder and path.is_file() else relative
        recipe.copies.append(CopyStep(path, keep))


def _words(file: Path, number: int, rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            words = json.loads(rest)
        except json.JSONDecodeError as error:
            raise _fault(file, number, "a list of paths", rest) from error
    else:
        words = [word for word in rest.split() if not word.startswith("--")]
    if len(words) < 2 or not all(isinstance(word, str) for word in words):
        raise _fault(file, number, "COPY SOURCE… TARGET", rest)
    return [_plain(file, number, word) for word in words]


def _matches(file: Path, number: int, source: str) -> list[Path]:
    folder = file.parent
    if ".." in PurePosixPath(source).parts:
        raise _fault(file, number, "a source inside the environment folder", source)
    pattern = source.lstrip("/")
    found = sorted(folder.glob(pattern)) if re.search(r"[*?\[]", pattern) else [folder / pattern]
    if not found or not all(path.exists() for path in found):
        raise _fault(file, number, f"{source} in {folder}", "no such file")
    for path in found:
        inside(path, folder)
    return found


def _plain(file: Path, number: int, word: str) -> str:
    """The path, which must not need a shell."""
    word = word.strip().strip("\"'")
    if "$" in word or ".." in PurePosixPath(word).parts:
        raise _fault(file, number, "a path without variables and without ..", word)
    return word


def _fault(file: Path, number: int, wanted: str, found: str) -> UserError:
    return UserError(
        f"{wanted} in {file} line {number}",
        found,
        "change that line, or prepare the workspace in environment/setup.sh",
    )
