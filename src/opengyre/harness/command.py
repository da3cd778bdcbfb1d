"""Any program that can be told where its model is.

Invariant: the words {instruction}, {base_url}, {key} and {model} are filled in; nothing else of the
command line or the environment changes.
"""

import re
import shutil
from pathlib import Path

from opengyre.core.errors import UserError
from opengyre.harness.base import PROGRAMS_INSIDE, Harness, HarnessRun
from opengyre.sandbox.base import Bind, Command

BLANK = re.compile(r"\{(instruction|base_url|key|model)\}")


class OtherProgram(Harness):
    """A program and its arguments, from the configuration."""

    def __init__(self, command: list[str], bind: Bind | None) -> None:
        self._command = command
        self._bind = bind

    @classmethod
    def installed(cls, command: list[str]) -> "OtherProgram":
        """Raises UserError when the program is not there."""
        found = shutil.which(command[0])
        if found is None:
            raise UserError(
                f"the program {command[0]} of harness.command",
                "no such program on PATH",
                "install it or give its full path",
            )
        program = Path(found).resolve()
        if program.is_relative_to("/usr"):
            return cls(command, None)
        inside = f"{PROGRAMS_INSIDE}/{program.name}"
        return cls([inside, *command[1:]], Bind(program, inside))

    def command(self, run: HarnessRun) -> Command:
        words = {
            "instruction": run.instruction,
            "base_url": run.base_url,
            "key": run.key,
            "model": run.model,
        }

        def fill(text: str) -> str:
            return BLANK.sub(lambda blank: words[blank[1]], text)

        return Command(
            argv=[fill(word) for word in [*self._command, *run.args]],
            cwd=run.workdir,
            timeout_s=run.timeout_s,
            env={name: fill(value) for name, value in run.env.items()},
            binds=[] if self._bind is None else [self._bind],
        )
