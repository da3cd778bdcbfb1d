"""Qwen Code, unmodified: what it does with its history, and what becomes of every token."""

import json
from dataclasses import replace

import pytest

from opengyre.harness.base import HarnessOutcome, HarnessRun
from opengyre.harness.qwen_code import ENTRY, QwenCode
from opengyre.sandbox.base import Command
from tests.conformance.cells import Say
from tests.conformance.conftest import Start
from tests.conformance.faults import Answer, Cut
from tests.conformance.programs import program
from tests.conformance.scenario import Lines, call, calls
from tests.conformance.world import World, clean

pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(240)]
SUMMARISER = "You are the component that summarizes a conversation"
SNAPSHOT = (
    "<analysis>\nThe user wants it shared. Much was printed.\n</analysis>\n\n<state_snapshot>\n"
    "    <primary_request_and_intent>Share it.</primary_request_and_intent>\n</state_snapshot>"
)


def shell(command: str) -> str:
    return call("run_shell_command", command=command, description="work", is_background=False)


def agent(prompt: str, kind: str = "general-purpose", **more: object) -> str:
    options = {"run_in_background": False, **more}
    return call("agent", description="part", prompt=prompt, subagent_type=kind, **options)


class InAnthropicsWords(QwenCode):
    """Its other dialect; its User-Agent is Claude Code's there."""

    def command(self, run: HarnessRun) -> Command:
        command = super().command(run)
        api = {"BASE_URL": run.base_url, "API_KEY": run.key, "MODEL": run.model}
        return replace(
            command,
            argv=["anthropic" if word == "openai" else word for word in command.argv],
            env=command.env | {f"ANTHROPIC_{name}": value for name, value in api.items()},
        )


async def run(
    world: World, instruction: str, kind: type[QwenCode] = QwenCode, **generation: object
) -> HarnessOutcome:
    harness = kind(program("qwen-code").with_name(ENTRY), program("node"))
    settings = json.dumps({"model": {"generationConfig": generation}})
    files = {"main.py": "x = 1\n", ".qwen/settings.json": settings}
    return await world.run(harness, instruction, files=files)


async def test_a_tool_loop_is_one_line(start: Start) -> None:
    """Parallel tools, arguments it cannot use, a role switch in mid-stream, a call nobody can read."""
    lines = Lines(
        {
            "Fix it": [
                Say(f"<think>\nhm\n</think>\n\nI look. \n{shell('cat main.py')}", "look"),
                Say(calls(shell("sleep 0.3; echo first"), shell("echo second")), "two"),
                Say(call("run_shell_command", n=1.0, description="no command"), "unfit"),
                Say(call("no_such_tool", x=1.0), "unknown"),
                Say(shell("echo 'x = 2' > main.py"), "edit", move_after=9),
                Say('<tool_call>\n{"name": "bash", "arguments": {"comm\n</tool_call>', "malformed"),
            ]
        }
    )
    world = await start(lines, harness="qwen-code")
    clean(await run(world, "Fix it"))
    world.check()
    assert (world.workspace / "main.py").read_text() == "x = 2\n"
    assert world.shape() == ["main: look two unfit unknown edit malformed"]
    assert lines.left == []
    report = world.report()
    assert (report.moves_with_kv, report.malformed_tool_calls, report.forks) == (1, 1, {})


async def test_sub_agents_in_parallel_and_nested(start: Start) -> None:
    lines = Lines(
        {
            "PART-C": [Say(shell("echo c"), "c1"), Say("C done.", "c2")],
            "PART-A": [Say(agent("PART-C"), "a1", together=2), Say("A done.", "a2")],
            "PART-B": [Say(shell("echo b"), "b1", together=2), Say("B done.", "b2")],
            "Share": [
                Say(calls(agent("PART-A"), agent("PART-B", "Explore")), "spawn"),
                Say("All done.", "end"),
            ],
        }
    )
    world = await start(lines, harness="qwen-code")
    clean(await run(world, "Share it"))
    world.check()
    assert lines.left == []
    assert world.shape() == [
        "main: spawn end",
        "sub-agent (new-conversation): a1 a2",
        "  sub-agent (new-conversation): c1 c2",
        "sub-agent (new-conversation): b1 b2",
    ]


async def test_in_anthropics_dialect_the_tree_is_the_same(start: Start) -> None:
    lines = Lines(
        {
            "PART-A": [Say(shell("echo a"), "a1"), Say("A done.", "a2")],
            "Share": [
                Say(f"<think>\nhm\n</think>\n\nI look. \n{shell('cat main.py')}", "look"),
                Say(calls(shell("sleep 0.3; echo first"), shell("echo second")), "two"),
                Say(agent("PART-A"), "spawn", move_after=9),
                Say("All done.", "end"),
            ],
        }
    )
    world = await start(lines, harness="qwen-code")
    clean(await run(world, "Share it", InAnthropicsWords))
    world.check()
    assert lines.left == []
    assert {call.dialect for call in world.calls()} == {"anthropic"}
    assert world.shape() == [
        "main: look two spawn end",
        "sub-agent (new-conversation): a1 a2",
    ]


async def test_compaction_of_main_and_of_a_sub_agent(start: Start) -> None:
    """It asks in the conversation itself, and again with a system text of its own if that fails.

    The wait: on a busy machine its shell tool loses what a command prints that ends at once.
    """
    much = shell("seq 1 9000; sleep 1")
    lines = Lines(
        {
            SUMMARISER: [Say(SNAPSHOT, "sub-summary"), Say(shell("echo no"), "refused")],
            "First, reason in your <analysis> block": [Say(SNAPSHOT, "summary")],
            "Resume the prior task": [Say("Done.", "after-sub"), Say("Done.", "after")],
            "PART-A": [Say(much, "a0"), Say(much, "a1")],
            "Share": [Say(agent("PART-A"), "spawn"), Say(much, "m0")],
        }
    )
    world = await start(lines, harness="qwen-code")
    clean(await run(world, "Share it", contextWindowSize=50_000))
    world.check()
    assert lines.left == []
    assert world.shape() == [
        "main-summary (compaction): summary",
        "main: spawn m0",
        "  main (compaction): after",
        "  main-summary: refused",
        "sub-agent (new-conversation): a0 a1",
        "  sub-agent (compaction): after-sub",
        "  sub-agent-summary: sub-summary",
    ]


async def test_errors_cuts_a_restart_and_length_stops(start: Start) -> None:
    truncated = '<tool_call>\n{"name": "run_shell_command", "arguments": {"comm'
    lines = Lines(
        {
            "Fix it": [
                Say(f"First I look.\n{shell('echo one')}", "one"),
                Say(f"Then again.\n{shell('echo two')}", "two"),
                Say(f"And again.\n{shell('echo three')}", "three"),
                Say(f"Go on.\n{shell('echo four')}", "four"),
                Say(f"And once more.\n{shell('echo five')}", "five", hold_after=7),
                Say("Half an", "half", stopped=False),
                Say(shell("echo six"), "six"),
                Say(truncated, "truncated", stopped=False),
                Say(shell("echo seven"), "seven"),
                Say("Done.", "done"),
            ]
        }
    )
    faults = [
        Answer(1, 500),
        Answer(2, 429, headers={"retry-after": "1"}),
        Cut(4, "Then again", where="before"),
        Cut(6, "And again", where="after"),
    ]
    world = await start(lines, harness="qwen-code", faults=faults)
    clean(await world.through_a_restart(run(world, "Fix it")))
    world.check()
    assert lines.left == []
    assert world.faults.struck == faults
    # A part and what was said behind it become one message; what was stopped for its length is
    # thrown away and asked for again with more room.
    assert world.shape() == [
        "main: one two three",
        "  main (history-edited): five half",
        "    main (sibling): six truncated",
        "      main (sibling): seven done",
        "  main (history-edited): four",
    ]
    again = [sample.name for sample in world.cells.samples if len(sample.request_ids) > 1]
    assert (again, world.report().repeated_calls) == (["five"], 2)
