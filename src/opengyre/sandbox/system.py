"""What of the host's system a bubblewrap sandbox shows: programs and libraries, never data.

Invariant: everything listed here is mounted read-only, and no Python package of the host is seen.
"""

import sys
from pathlib import Path

HOME = "/home/agent"
"""The agent's private home."""
USER_ID = "1000"
"""Not root: many programs refuse or change their ways as root."""
HOST_NAME = "sandbox"
"""The same for all, so that prompts that contain it share their prefix."""

ETC_HERE = Path(__file__).parent / "etc"
"""Made for the sandbox: its own user, no users of the host."""
ETC_OF_HOST = (
    "alternatives",
    "ca-certificates.conf",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
"""What programs need in order to start and to read text; no keys, no accounts."""
TOP_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Links into /usr on most systems, folders on the others."""
PYTHON_PACKAGES = (
    "lib/python3*/dist-packages",
    "lib/python3*/site-packages",
    "local/lib/python3*/dist-packages",
    "local/lib/python3*/site-packages",
)
"""Hidden: a task must not pass because the host happens to have a library."""


def python_prefix() -> Path | None:
    """Our Python's own folder where it is not part of /usr."""
    prefix = Path(sys.base_prefix).resolve()
    return None if prefix.is_relative_to("/usr") else prefix


def search_path() -> str:
    """PATH inside: the system's programs first, our Python's last."""
    folders = ["/usr/local/bin", "/usr/bin", "/bin"]
    prefix = python_prefix()
    return ":".join(folders if prefix is None else [*folders, str(prefix / "bin")])


def system_options(scratch_bytes: int) -> list[str]:
    """bwrap's options for everything but the command's own binds; the root stays writable."""
    options = ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    for name in TOP_FOLDERS:
        options += _top_folder(Path("/") / name)
    for file in sorted(ETC_HERE.iterdir()):
        options += ["--ro-bind", str(file), f"/etc/{file.name}"]
    for name in ETC_OF_HOST:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    options += _python_options()
    for folder in ("/dev/shm", "/tmp", "/var/tmp", "/run", "/home"):
        options += ["--size", str(scratch_bytes), "--perms", "1777", "--tmpfs", folder]
    return [*options, "--remount-ro", "/dev", "--dir", HOME]


def _top_folder(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", str(folder.readlink()), str(folder)]
    return ["--ro-bind", str(folder), str(folder)] if folder.is_dir() else []


def _python_options() -> list[str]:
    prefix = python_prefix()
    options = [] if prefix is None else ["--ro-bind", str(prefix), str(prefix)]
    for root in [Path("/usr"), *([] if prefix is None else [prefix])]:
        for pattern in PYTHON_PACKAGES:
            for folder in sorted(root.glob(pattern)):
                if folder.is_dir() and not folder.is_symlink():
                    options += ["--tmpfs", str(folder), "--remount-ro", str(folder)]
    return options
