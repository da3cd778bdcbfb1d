"""Codex, unmodified: what it does with its history, and what becomes of every token."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from opengyre.harness.base import HarnessOutcome
from opengyre.harness.codex import Codex
from tests.conformance.cells import Say
from tests.conformance.conftest import Start
from tests.conformance.faults import Answer, Cut
from tests.conformance.programs import program
from tests.conformance.scenario import Lines, Seen, call, calls
from tests.conformance.world import World, clean

pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(240)]
AGENT_ID = re.compile(r'"agent_id":\s*"([^"]+)"')


def shell(command: str) -> str:
    return call("exec_command", cmd=command)


def spawn(message: str, **more: object) -> str:
    return call("multi_agent_v1.spawn_agent", message=message, **more)


def wait(seen: Seen, number: int) -> str:
    """For one of the agents that were told of."""
    ids = list(dict.fromkeys(AGENT_ID.findall("\n".join(seen.results))))
    return call("multi_agent_v1.wait_agent", targets=[ids[number]], timeout_ms=100_000)


async def run(world: World, instruction: str, args: Sequence[str] = ()) -> HarnessOutcome:
    files = {"main.py": "x = 1\n"}
    return await world.run(Codex(program("codex")), instruction, args=args, files=files)


async def test_a_tool_loop_is_one_line(start: Start) -> None:
    """Parallel tools, arguments it cannot use, a role switch in mid-stream, a call nobody can read."""
    lines = Lines(
        {
            "Fix it": [
                Say(f"<think>\nhm\n</think>\n\nI look. \n{shell('cat main.py')}", "look"),
                Say(calls(shell("sleep 0.3; echo first"), shell("echo second")), "two"),
                Say(call("exec_command", command=1.0), "unfit"),
                Say(call("no_such_tool", x=1.0), "unknown"),
                Say(shell("sed -i s/1/2/ main.py"), "edit", move_after=9),
                Say('<tool_call>\n{"name": "exec_command", "argum\n</tool_call>', "malformed"),
            ]
        }
    )
    world = await start(lines, harness="codex")
    clean(await run(world, "Fix it"))
    world.check()
    assert (world.workspace / "main.py").read_text() == "x = 2\n"
    assert world.shape() == ["main: look two unfit unknown edit malformed"]
    assert lines.left == []
    report = world.report()
    assert (report.moves_with_kv, report.malformed_tool_calls, report.forks) == (1, 1, {})


def spoken(lines: Lines) -> Callable[[Seen], Say]:
    """WAIT n is a call that waits for the n-th agent, whose id only the prompt tells."""

    def scenario(seen: Seen) -> Say:
        say = lines(seen)
        word, _, number = say.text.partition(" ")
        return replace(say, text=wait(seen, int(number))) if word == "WAIT" else say

    return scenario


async def test_sub_agents_in_parallel_and_nested(start: Start) -> None:
    lines = Lines(
        {
            "PART-C": [Say(shell("echo c"), "c1"), Say("C done.", "c2")],
            "PART-A": [
                Say(spawn("PART-C"), "a1", together=2),
                Say("WAIT 0", "a2"),
                Say("A done.", "a3"),
            ],
            "PART-B": [Say(shell("echo b"), "b1", together=2), Say("B done.", "b2")],
            "Share": [
                Say(calls(spawn("PART-A"), spawn("PART-B")), "spawn"),
                Say("WAIT 0", "wait-a"),
                Say("WAIT 1", "wait-b"),
                Say("All done.", "end"),
            ],
        }
    )
    world = await start(spoken(lines), harness="codex")
    clean(await run(world, "Share it", ["-c", "agents.max_depth=3"]))
    world.check()
    assert lines.left == []
    # They share their opening with main, so they part from it and not from nothing.
    assert world.shape() == [
        "main: spawn wait-a wait-b end",
        "  sub-agent (new-conversation): a1 a2 a3",
        "  sub-agent (new-conversation): b1 b2",
        "  sub-agent (new-conversation): c1 c2",
    ]


async def test_a_sub_agent_that_takes_the_history_along(start: Start) -> None:
    lines = Lines(
        {
            "PART-A": [Say(shell("echo a"), "a1"), Say("A done.", "a2")],
            "Share": [
                Say(shell("echo m"), "look"),
                Say(spawn("PART-A", fork_context=True), "spawn"),
                Say("WAIT 0", "wait"),
                Say("All done.", "end"),
            ],
        }
    )
    world = await start(spoken(lines), harness="codex")
    clean(await run(world, "Share it", ["-c", "agents.max_depth=3"]))
    world.check()
    assert lines.left == []
    assert world.shape() == [
        "main: look spawn wait end",
        "  sub-agent (new-conversation): a1 a2",
    ]


async def test_compaction_of_main_and_of_a_sub_agent(start: Start) -> None:
    much = shell("seq 1 9000")
    lines = Lines(
        {
            "CONTEXT CHECKPOINT COMPACTION": [
                Say(f"SUMMARY number {n}: what was done so far, in detail.", f"summary{n}")
                for n in range(9)
            ],
            "Another language model started": [Say("Done.", f"after{n}") for n in range(9)],
            "PART-A": [Say(much, f"a{n}") for n in range(9)],
            "Share": [
                Say(spawn("PART-A"), "spawn"),
                Say("WAIT 0", "wait"),
                *[Say(much, f"m{n}") for n in range(9)],
            ],
        }
    )
    world = await start(spoken(lines), harness="codex")
    clean(await run(world, "Share it", ["-c", "model_auto_compact_token_limit=20000"]))
    world.check()
    assert world.shape() == [
        "main: spawn wait m0 m1",
        "  main (compaction): after1",
        "sub-agent (new-conversation): a0 a1 a2",
        "  sub-agent (compaction): after0",
        "sub-agent-summary (compaction): summary0",
        "  main-summary (compaction): summary1",
    ]


async def test_errors_cuts_and_a_restart(start: Start) -> None:
    lines = Lines(
        {
            "Fix it": [
                Say(f"First I look.\n{shell('echo one')}", "one"),
                Say(f"Then again.\n{shell('echo two')}", "two"),
                Say(f"And again.\n{shell('echo three')}", "three"),
                Say(f"And once more.\n{shell('echo four')}", "four"),
                Say(f"On.\n{shell('echo five')}", "five"),
                Say(f"On and on.\n{shell('echo six')}", "six", hold_after=7),
                Say("Done.", "done"),
            ]
        }
    )
    faults = [
        Answer(1, 500, times=2),
        Cut(4, "output_text.delta"),
        Cut(6, "output_item.done", nth=1),
        Cut(8, "output_item.done", nth=2),
    ]
    world = await start(lines, harness="codex", faults=faults)
    clean(await world.through_a_restart(run(world, "Fix it")))
    world.check()
    assert lines.left == []
    assert world.faults.struck == [faults[0], *faults]
    # What was finished of an answer stays; the next one is asked for right behind it.
    assert world.shape() == [
        "main: one two three",
        "  main (history-edited): four five six done",
    ]
    again = [sample.name for sample in world.cells.samples if len(sample.request_ids) > 1]
    assert (again, world.report().repeated_calls) == (["six"], 2)


async def test_a_length_stop_fails_it(start: Start) -> None:
    lines = Lines(
        {"Fix it": [Say(shell("echo one"), "one"), Say("Half an", "half", stopped=False)]}
    )
    world = await start(lines, harness="codex")
    outcome = await run(world, "Fix it")
    world.check()
    assert outcome.exit_code == 1
    assert world.shape() == ["main: one half"]
