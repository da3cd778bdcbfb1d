"""Running a harness in a sandbox, and naming its end.

Invariant: when run_harness returns or is cancelled nothing of the agent is alive, and its workspace
is as it left it.
"""

from dataclasses import replace
from pathlib import Path

from opengyre.core.errors import HarnessError, SandboxError
from opengyre.core.reasons import Ending
from opengyre.harness.base import (
    DOOR_INSIDE,
    FORWARDER_INSIDE,
    Harness,
    HarnessOutcome,
    HarnessRun,
)
from opengyre.sandbox import forward
from opengyre.sandbox.base import Bind, Command, Outcome, Sandbox


async def run_harness(harness: Harness, run: HarnessRun, sandbox: Sandbox) -> HarnessOutcome:
    """Run to the end or to run.timeout_s. A sandbox that breaks is an outcome, not an error.

    Raises HarnessError when the program would see more of us than the proxy's socket.
    """
    check_door(run.socket)
    if not sandbox.private_network:
        run = replace(run, port=forward.PORT_WORD)
    try:
        outcome = await sandbox.run(connected(harness.command(run), run))
    except SandboxError as error:
        return _not_started(error)
    return _told(outcome)


def check_door(path: Path) -> None:
    """Raises HarnessError unless the folder is there, with nothing in it but the socket."""
    try:
        others = sorted(found.name for found in path.parent.iterdir() if found != path)
    except OSError as error:
        raise HarnessError(f"wanted the folder of the proxy's socket; found {error}") from error
    if others:
        raise HarnessError(
            f"wanted nothing but the proxy's socket in {path.parent}, which agents see; "
            f"found {', '.join(others)}"
        )


def connected(command: Command, run: HarnessRun) -> Command:
    """The program behind a forwarder to the proxy's socket, in its workspace."""
    port = "0" if run.port == forward.PORT_WORD else run.port
    socket = f"{DOOR_INSIDE}/{run.socket.name}"
    front = ["python3", "-I", "-S", FORWARDER_INSIDE, port, socket]
    ours = [
        Bind(run.workspace, run.workdir, writable=True),
        Bind(Path(forward.__file__), FORWARDER_INSIDE),
        Bind(run.socket.parent, DOOR_INSIDE),
    ]
    return replace(command, argv=[*front, *command.argv], binds=[*ours, *command.binds])


def ending_of(
    outcome: HarnessOutcome,
    complete_replies: int,
    failed_calls: int,
    *,
    last_failed: bool,
    context_limit: bool,
) -> Ending:
    """Name the end. The proxy counts complete_replies and, through our fault, failed_calls.

    last_failed: after the last of those came no reply any more. Some programs exit with 0 then.
    """
    clean = outcome.exit_code == 0
    if not outcome.started or (outcome.oom and not clean and not outcome.timed_out):
        return Ending.SANDBOX_DIED
    if last_failed or (failed_calls > 0 and not clean):
        return Ending.MODEL_FAILED
    if complete_replies == 0 and not clean:
        return Ending.NEVER_STARTED
    if outcome.timed_out:
        return Ending.HARNESS_TIMEOUT
    if context_limit:
        return Ending.CONTEXT_LIMIT
    return Ending.FINISHED if clean else Ending.NONZERO_EXIT


def _not_started(error: SandboxError) -> HarnessOutcome:
    return HarnessOutcome(
        exit_code=None,
        timed_out=False,
        oom=False,
        seconds=0.0,
        stdout_tail="",
        stderr_tail=str(error),
        started=False,
    )


def _told(outcome: Outcome) -> HarnessOutcome:
    return HarnessOutcome(
        exit_code=outcome.exit_code,
        timed_out=outcome.timed_out,
        oom=outcome.oom,
        seconds=outcome.seconds,
        stdout_tail=outcome.stdout.decode(errors="replace"),
        stderr_tail=outcome.stderr.decode(errors="replace"),
        started=True,
    )
