"""Demonstrations as conversations, word for word as Claude Code would have sent them.

The commands are run for real, by the same shell, on the task's real files; what Claude Code puts
around their output is imitated here, and a test compares it with the real program.
"""

import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opengyre.proxy.messages import Conversation, Message, Tool, ToolCall
from opengyre.tasks.bundled import Final, Puzzle, Skill, draw

SYSTEM_PROMPT = "Work in this folder."
"""The quickstart's --system-prompt; Claude Code's default one names folder and date."""

SYSTEM = f"You are a Claude agent, built on Anthropic's Claude Agent SDK.\n{SYSTEM_PROMPT}"
"""What Claude Code makes of it."""

BASH = Tool(
    name="Bash",
    description="",
    parameters={
        "properties": {
            name: {} for name in ("command", "timeout", "description", "dangerouslyDisableSandbox")
        }
    },
)
"""Claude Code's Bash, as far as a signature shows it."""

NO_OUTPUT = "(Bash completed with no output)"
"""What Claude Code says of a command that printed nothing."""

COMMAND_SECONDS = 10
"""The demonstrations' commands take milliseconds."""


def demonstrations(
    families: list[str], count: int, seed: int, skill: Skill
) -> Iterator[Conversation]:
    """`count` conversations on training tasks, the families taking turns."""
    rng = random.Random(f"demonstrations/{seed}")
    share = -(-count // len(families))
    drawn = [draw(family, "train", share, seed) for family in families]
    for i in range(count):
        puzzle = drawn[i % len(families)][i // len(families)]
        yield demonstrate(puzzle, rng, skill)


def demonstrate(puzzle: Puzzle, rng: random.Random, skill: Skill) -> Conversation:
    """One demonstration, its commands run in a fresh copy of the task's files."""
    blueprint = puzzle.blueprint()
    messages = [Message("user", blueprint.instruction)]
    with tempfile.TemporaryDirectory(prefix="opengyre-trace-") as folder:
        for name, text in blueprint.files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for turn, action in enumerate(puzzle.demonstrate(rng, skill)):
            if isinstance(action, Final):
                messages.append(Message("assistant", action.text))
            else:
                call = ToolCall(f"call-{turn}", "Bash", {"command": action})
                result = shown(*run_command(action, Path(folder)))
                messages.append(Message("assistant", calls=(call,)))
                messages.append(Message("tool", result, call_id=call.call_id))
    return Conversation(SYSTEM, (BASH,), tuple(messages))


def run_command(command: str, folder: Path) -> tuple[int, str]:
    """Exit code and output of a demonstration's command."""
    done = subprocess.run(
        ["/bin/bash", "-c", command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def shown(exit_code: int, output: str) -> str:
    """A Bash result in Claude Code's words."""
    text = output.rstrip()
    if exit_code:
        return f"Exit code {exit_code}" + (f"\n{text}" if text else "")
    return text or NO_OUTPUT
