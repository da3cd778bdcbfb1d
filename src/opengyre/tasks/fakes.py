"""A sandbox that plays a script, for tests of what evaluators may do."""

from collections.abc import Callable
from pathlib import Path

from opengyre.sandbox.base import Command, Outcome


class ScriptedSandbox:
    """Each run calls the script with the command and keeps the command."""

    def __init__(self, script: Callable[[Command], Outcome]) -> None:
        self._script = script
        self.commands: list[Command] = []

    @property
    def private_network(self) -> bool:
        return True

    async def run(self, command: Command) -> Outcome:
        self.commands.append(command)
        return self._script(command)


def ended(exit_code: int | None = 0, *, timed_out: bool = False, oom: bool = False) -> Outcome:
    """An outcome with nothing said."""
    return Outcome(
        exit_code=exit_code, timed_out=timed_out, oom=oom, stdout=b"", stderr=b"", seconds=0.0
    )


def place(command: Command, target: str) -> Path:
    """The host's folder behind a path inside."""
    return next(bind.source for bind in command.binds if bind.target == target)
