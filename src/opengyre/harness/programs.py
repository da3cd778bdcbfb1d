"""Finding agent programs.

Invariant: a program that is returned exists; one that does not is a UserError with its package.
"""

import importlib.util
import shutil
from pathlib import Path

from opengyre.core.errors import UserError

ELF = b"\x7fELF"
"""How a program for Linux begins."""


def package_folder(module: str) -> Path | None:
    """Folder of an installed Python package, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent


def native_program(module: str, inner: str, name: str, npm: str, install: str) -> Path:
    """The program from a Python package, else from PATH, seeing through npm's launcher script."""
    folder = package_folder(module)
    if folder is not None and (folder / inner).is_file():
        return folder / inner
    found = shutil.which(name)
    if found is not None:
        program = Path(found).resolve()
        if _is_native(program):
            return program
        for parent in program.parents:
            for candidate in sorted(parent.glob(f"node_modules/{npm}/**/{name}")):
                if _is_native(candidate):
                    return candidate
    raise UserError(
        f"the program {name}",
        f"neither the Python package {module} with {inner} nor a native {name} on PATH",
        install,
    )


def _is_native(program: Path) -> bool:
    if not program.is_file():
        return False
    with program.open("rb") as reader:
        return reader.read(len(ELF)) == ELF
