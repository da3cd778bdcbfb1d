"""Records executions with many branches through real Claude Code, for `opengyre bench jmax`.

Run it as `python -m tests.app.bench.record_branches FOLDER`: the program, its sandbox, the proxy and
the store are real; what the policy says is drawn from the words of this project's own source. Each
execution starts sub-agents in parallel, some of which start their own, and compacts its history; the
run folders then stand below FOLDER, an execution each.
"""

import asyncio
import random
import sys
from pathlib import Path

from tests.conformance import programs
from tests.conformance.cells import Say
from tests.conformance.scenario import Lines, call, calls
from tests.conformance.world import World

import opengyre
from opengyre.harness.claude_code import ClaudeCode
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.session import Limits

EXECUTIONS = 6
INSTRUCTION = "Fix it."
COMPACTION = {"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "8"}
"""The program compacts from 8,000 tokens on: the smallest contexts that still have everything."""
SUMMARY = "CRITICAL: Respond with TEXT ONLY"
"""In the prompt that asks for a summary."""
AFTER = "continued from a previous"
"""In the prompt that follows it."""


class Words:
    """Text to say, drawn from source files."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        folder = Path(opengyre.__file__).parent
        self._lines = [
            line
            for file in sorted((folder / "tree").glob("*.py"))
            for line in file.read_text(encoding="utf-8").splitlines()
        ]

    def say(self, most: int) -> str:
        """Up to so many lines."""
        count = self.draw.randint(2, most)
        start = self.draw.randrange(len(self._lines) - count)
        return "\n".join(self._lines[start : start + count])

    def look(self, name: str) -> Say:
        """A tool call after some words."""
        return Say(f"{self.say(12)}\n{call('Bash', command=f'echo {name}')}", name)

    def end(self, name: str) -> Say:
        """An answer without a tool call."""
        return Say(self.say(20), name)


def agent(task: str) -> str:
    """Start a sub-agent and wait for it."""
    return call(
        "Agent",
        description="part",
        prompt=task,
        subagent_type="general-purpose",
        run_in_background=False,
    )


def scenario(seed: int) -> Lines:
    """Four to seven sub-agents, the first of which starts another; work before and after a summary."""
    words = Words(seed)
    tasks = [f"Task {letter}." for letter in "ABCDEFG"[: words.draw.randint(4, 7)]]
    lines = {
        SUMMARY: [Say(f"<summary>{words.say(30)}</summary>", "sum")],
        "Task nested.": [words.look("nested"), words.end("nested done")],
    }
    for task in tasks:
        turns = [words.look(task[5]) for _ in range(words.draw.randint(1, 3))]
        if task == tasks[0]:
            turns.append(Say(agent("Task nested."), "deeper"))
        lines[task] = [*turns, words.end(f"{task[5]} done")]
    lines[AFTER] = [words.look("on"), words.look("still"), words.end("done")]
    lines[INSTRUCTION] = [
        words.look("first"),
        Say(f"{words.say(6)}\n{calls(*map(agent, tasks))}", "share out"),
        words.look("second"),
        Say(call("Bash", command="seq 1 1500"), "much"),
        words.look("third"),
        words.end("early"),
    ]
    return Lines(lines)


async def record(seed: int, folder: Path) -> list[str]:
    """One execution; returns the shape of its tree."""
    limits = Limits(context_tokens=200_000, max_new_tokens=100_000, max_body_bytes=1 << 26)
    family = Qwen3Family(programs.tokenizer())
    world = World(family, scenario(seed), folder, harness="claude-code", limits=limits)
    await world.start()
    try:
        await world.run(
            ClaudeCode(programs.program("claude-code")),
            INSTRUCTION,
            args=["--tools", "Bash,Agent"],
            env=COMPACTION,
        )
        return world.shape()
    finally:
        await world.stop()


def main(folder: Path) -> None:
    """Record them all."""
    for seed in range(EXECUTIONS):
        run = folder / f"claude-code-{seed}"
        run.mkdir(parents=True)
        shape = asyncio.run(record(seed, run))
        sys.stdout.write(f"{seed}:\n" + "\n".join(shape) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
