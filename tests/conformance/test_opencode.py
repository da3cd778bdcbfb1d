"""OpenCode, unmodified: what it does with its history, and what becomes of every token."""

import json

import pytest

from opengyre.harness.base import HarnessOutcome
from opengyre.harness.opencode import OpenCode
from tests.conformance.cells import Say
from tests.conformance.conftest import Start
from tests.conformance.faults import Answer, Cut
from tests.conformance.programs import program
from tests.conformance.scenario import Lines, call, calls
from tests.conformance.world import World, clean

pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(240)]


def bash(command: str) -> str:
    return call("bash", command=command, description="work")


def task(prompt: str, kind: str = "general") -> str:
    return call("task", description="part", prompt=prompt, subagent_type=kind)


async def run(world: World, instruction: str, **config: object) -> HarnessOutcome:
    files = {"main.py": "x = 1\n", "opencode.json": json.dumps(config)}
    return await world.run(OpenCode(program("opencode")), instruction, files=files)


async def test_a_tool_loop_is_one_line(start: Start) -> None:
    """Parallel tools, arguments it cannot use, a role switch in mid-stream, a call nobody can read."""
    lines = Lines(
        {
            "Fix it": [
                Say(f"<think>\nhm\n</think>\n\nI look. \n{bash('cat main.py')}", "look"),
                Say(calls(bash("sleep 0.3; echo first"), bash("echo second")), "two"),
                Say(call("bash", description="no command"), "unfit"),
                Say(call("no_such_tool", x=1.0), "unknown"),
                Say(bash("sed -i s/1/2/ main.py"), "edit", move_after=9),
                Say('<tool_call>\n{"name": "bash", "arguments": {"comm\n</tool_call>', "malformed"),
            ]
        }
    )
    world = await start(lines, harness="opencode")
    clean(await run(world, "Fix it"))
    world.check()
    assert (world.workspace / "main.py").read_text() == "x = 2\n"
    # It turns a call of a tool that it does not know into one of its own tool "invalid".
    assert world.shape() == [
        "main: look two unfit unknown",
        "  main (history-edited): edit malformed",
    ]
    assert lines.left == []
    report = world.report()
    assert (report.moves_with_kv, report.malformed_tool_calls) == (1, 1)


async def test_sub_agents_in_parallel(start: Start) -> None:
    """Its sub-agents have no tool to start others with."""
    lines = Lines(
        {
            "PART-A": [Say(bash("echo a"), "a1", together=2), Say("A done.", "a2")],
            "PART-B": [Say(bash("echo b"), "b1", together=2), Say("B done.", "b2")],
            "Share": [
                Say(calls(task("PART-A"), task("PART-B", "explore")), "spawn"),
                Say("All done.", "end"),
            ],
        }
    )
    world = await start(lines, harness="opencode")
    clean(await run(world, "Share it"))
    world.check()
    assert lines.left == []
    assert world.shape() == [
        "main: spawn end",
        "sub-agent (new-conversation): a1 a2",
        "sub-agent (new-conversation): b1 b2",
    ]


async def test_errors_cuts_a_restart_and_a_length_stop(start: Start) -> None:
    lines = Lines(
        {
            "Fix it": [
                Say(f"First I look.\n{bash('echo one')}", "one"),
                Say(f"Then again.\n{bash('echo two')}", "two"),
                Say(f"And again.\n{bash('echo three')}", "three"),
                Say(f"And once more.\n{bash('echo four')}", "four", hold_after=7),
                Say("Half of an", "half", stopped=False),
            ]
        }
    )
    faults = [
        Answer(1, 500),
        Answer(2, 429, headers={"retry-after": "1"}),
        Cut(4, "Then again"),
        Cut(6, '"tool_calls"', nth=1),
    ]
    world = await start(lines, harness="opencode", faults=faults)
    clean(await world.through_a_restart(run(world, "Fix it")))
    world.check()
    assert lines.left == []
    assert world.faults.struck == faults
    # A cut in a text leaves an empty answer behind, which is passed over; one after a tool call
    # that call without its text, and the result of its abort.
    assert world.shape() == ["main: one two three", "  main (history-edited): four half"]


async def test_compaction_of_main_and_of_a_sub_agent(start: Start) -> None:
    much = bash("seq 1 9000")
    lines = Lines(
        {
            "Here is the conversation so far": [
                Say("SUMMARY of the part: what was done so far, in detail.", "sub-summary"),
                Say("SUMMARY of it all: what was done so far, in detail.", "summary"),
            ],
            "PART-A": [Say(much, f"a{n}") for n in range(5)],
            "Share": [Say(task("PART-A"), "spawn"), *[Say(much, f"m{n}") for n in range(4)]],
            "What did we do": [Say("Done.", "after-sub"), Say("Done.", "after")],
        }
    )
    world = await start(lines, harness="opencode")
    limit = {"limit": {"context": 40_000, "output": 4_000}}
    clean(await run(world, "Share it", provider={"opengyre": {"models": {"policy": limit}}}))
    world.check()
    assert lines.left == []
    assert world.shape() == [
        "main: spawn m0 m1 m2 m3",
        "  main (compaction): after",
        "sub-agent (new-conversation): a0 a1 a2 a3 a4",
        "  sub-agent (compaction): after-sub",
        "sub-agent-summary (compaction): sub-summary",
        "  main-summary (compaction): summary",
    ]
