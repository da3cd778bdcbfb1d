"""Finding agent programs.

Invariant: a program that is returned exists; one that does not is a UserError with its package. A
folder of npm packages that was named is the only place that is looked in.
"""

import importlib.util
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from opengyre.core.errors import UserError

ELF = b"\x7fELF"
"""How a program for Linux begins."""
MODULES = "node_modules"
"""Where npm puts packages, below the folder that it was told."""


@dataclass(frozen=True, kw_only=True)
class Native:
    """A program of machine code, and where it may come from."""

    name: str
    """On PATH."""
    npm: str
    """Pattern of the names of its npm packages."""
    install: str
    """What a user does to get it."""
    module: str = ""
    """A Python package that brings it, if there is one."""
    inner: str = ""
    """Its place in that package."""


class NativeHarness:
    """An adapter whose program is one native file; each says which."""

    NATIVE: ClassVar[Native]

    def __init__(self, program: Path) -> None:
        self._program = program

    @classmethod
    def installed(cls, packages: Path | None = None) -> Self:
        """From the folder of npm packages if one is named. Raises UserError when it is not there."""
        return cls(find_native(cls.NATIVE, packages))


def find_native(native: Native, packages: Path | None) -> Path:
    """The program itself: from packages, a Python package or PATH, in this order."""
    if packages is not None:
        return _first([packages.expanduser()], native) or _missing(
            native, f"none below {packages / MODULES}"
        )
    folder = package_folder(native.module) if native.module else None
    if folder is not None and (folder / native.inner).is_file():
        return folder / native.inner
    found = shutil.which(native.name)
    if found is not None:
        program = Path(found).resolve()
        if _is_native(program):
            return program
        behind = _first(program.parents, native)
        if behind is not None:
            return behind
    python = f"the Python package {native.module}" if native.module else "harness.packages"
    return _missing(native, f"neither {python} nor a native {native.name} on PATH")


def find_script(name: str, npm: str, script: str, packages: Path | None) -> Path | None:
    """A script of an npm package: from packages if named, else behind its name on PATH."""
    if packages is not None:
        found = (packages.expanduser() / MODULES / npm / script).resolve()
        return found if found.is_file() else None
    on_path = shutil.which(name)
    if on_path is None:
        return None
    found = Path(on_path).resolve()
    return found if found.name == script else None


def package_folder(module: str) -> Path | None:
    """Folder of an installed Python package, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def _missing(native: Native, found: str) -> Path:
    raise UserError(f"the program {native.name}", found, native.install)


def _first(folders: Iterable[Path], native: Native) -> Path | None:
    """Seeing through npm's launcher scripts: the first real program below node_modules."""
    for folder in folders:
        for candidate in sorted(folder.glob(f"{MODULES}/{native.npm}/**/{native.name}")):
            if _is_native(candidate):
                return candidate.resolve()
    return None


def _is_native(program: Path) -> bool:
    if not program.is_file():
        return False
    with program.open("rb") as reader:
        return reader.read(len(ELF)) == ELF
