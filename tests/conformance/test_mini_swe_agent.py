"""mini-swe-agent, unmodified: what it does with its history, and what becomes of every token."""

import pytest

from opengyre.harness.base import HarnessOutcome
from opengyre.harness.mini_swe_agent import MiniSweAgent
from tests.conformance.cells import Say
from tests.conformance.conftest import Start
from tests.conformance.faults import Answer, Cut
from tests.conformance.scenario import Lines, call, calls
from tests.conformance.world import World

pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(240)]


def bash(command: str) -> str:
    return call("bash", command=command)


FINISH = Say(bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"), "finish")


async def run(world: World, instruction: str) -> HarnessOutcome:
    files = {"main.py": "x = 1\n"}
    outcome = await world.run(MiniSweAgent.installed(), instruction, files=files)
    assert outcome.exit_code == 0, (outcome.stdout_tail[-2000:], outcome.stderr_tail[-2000:])
    return outcome


async def test_tools_removed_replies_errors_and_a_cut(start: Start) -> None:
    """One run, since its start costs most: a reply without a valid call is taken out of history."""
    lines = Lines(
        {
            "Fix it": [
                Say(f"<think>\nhm\n</think>\n\nI look. \n{bash('cat main.py')}", "look"),
                Say(calls(bash("sleep 0.3; echo first"), bash("echo second")), "two"),
                Say("No call at all.", "none"),
                Say('<tool_call>\n{"name": "bash", "arguments": {"comm\n</tool_call>', "malformed"),
                Say(bash("sed -i s/1/2/ main.py"), "edit", move_after=9),
                Say(call("no_such_tool", x=1.0), "unknown"),
                Say("Half a", "half", stopped=False),
                Say(bash("echo on"), "on", hold_after=7),
                FINISH,
            ]
        }
    )
    faults = [Answer(2, 500), Cut(4, "chat.completion", where="inside")]
    world = await start(lines, harness="mini-swe-agent", faults=faults)
    await world.through_a_restart(run(world, "Fix it"))
    world.check()
    assert (world.workspace / "main.py").read_text() == "x = 2\n"
    assert lines.left == []
    assert world.faults.struck == faults
    assert world.shape() == [
        "main: look two none",
        "  main (history-edited): malformed",
        "    main (history-edited): edit unknown",
        "      main (history-edited): half",
        "        main (history-edited): on finish",
    ]
    again = [sample.name for sample in world.cells.samples if len(sample.request_ids) > 1]
    report = world.report()
    assert (again, report.repeated_calls, report.moves_with_kv) == (["on"], 2, 1)
