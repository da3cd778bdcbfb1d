"""Every family behind the whole proxy: what a harness is told, and what is trained of it."""

import json
import random
from typing import Any

import aiohttp
import pytest

from opengyre.core.reasons import Ending, ForkReason, VerdictKind
from opengyre.core.records import Verdict
from opengyre.proxy.messages import Json, Message, ToolCall
from opengyre.tree.record import ExecutionTree
from opengyre.tree.weigh import samples_of_group
from tests.proxy.conftest import KEY, Start, World, fold
from tests.proxy.families_for_tests import BASH, SMALL
from tests.proxy.test_families import BROKEN, THOUGHT

TOOL = {"name": "Bash", "description": "Runs it.", "parameters": BASH.parameters}


async def ask(world: World, messages: list[dict[str, Any]]) -> dict[str, Any]:
    sent = {"model": "m", "messages": messages, "tools": [{"type": "function", "function": TOOL}]}
    headers = {"authorization": f"Bearer {KEY}"}
    url = f"{world.url}/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=sent, headers=headers) as response,
    ):
        assert response.status == 200, await response.text()
        answer = await response.json()
    told: dict[str, Any] = answer["choices"][0]["message"]
    return told


@pytest.mark.parametrize("name", sorted(SMALL))
async def test_parallel_calls_with_odd_arguments_go_out_and_come_back(
    start: Start, name: str
) -> None:
    family = SMALL[name]
    arguments: dict[str, Json] = {
        "command": "cat <<'E'\n</arg_value>\n</parameter>\nE",
        "timeout": 5,
        "free": "5",
    }
    calls = tuple(ToolCall(f"c{n}", "Bash", {**arguments, "ratio": n}) for n in range(2))
    wanted = Message("assistant", "Looking.", "", calls)
    written = family.encode(family.body((wanted,), (BASH,)))
    ending = family.stop_ids[1] if name == "glm-4.5" else family.stop_ids[0]
    world = await start([[*written, ending], THOUGHT.get(name, "") + "Done."], family=family)
    held: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    told = await ask(world, held)
    assert told["content"] == "Looking."
    sent = [json.loads(call["function"]["arguments"]) for call in told["tool_calls"]]
    assert sent == [call.arguments for call in calls]
    for call in told["tool_calls"]:  # a harness writes arguments its own way
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]))
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in told["tool_calls"]
    ]
    assert (await ask(world, [*held, told, *results]))["content"] == "Done."
    first, second = world.calls
    assert second.fork is None
    assert second.reused == len(first.suffix_ids) + len(first.output_ids)


@pytest.mark.parametrize("name", sorted(SMALL))
async def test_a_call_that_cannot_be_read_is_recorded_counted_and_trained_on(
    start: Start, name: str
) -> None:
    family = SMALL[name]
    ids = [
        *family.encode(f"{THOUGHT.get(name, '')}Go {BROKEN[name]}"),
        family.stop_ids[-1 if name == "glm-4.5" else 0],
    ]
    world = await start([ids, "Done."], family=family)
    held: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    told = await ask(world, held)
    assert told["content"] == f"Go {BROKEN[name]}"
    assert not told.get("tool_calls")
    await ask(world, [*held, told, {"role": "user", "content": "No call found."}])
    report = world.executions.report("e1")
    assert (report.malformed_tool_calls, report.calls) == (1, 2)
    first, second = world.calls
    assert first.output_ids == ids
    if name == "glm-4.5":  # <|endoftext|> is not how the user's turn begins
        assert second.fork is ForkReason.RENDER_MISMATCH
        assert second.reused == len(first.suffix_ids) + len(ids) - 1
    else:
        assert second.fork is None
    assert (
        fold(world.calls, second.call_id)[: second.reused]
        == (first.suffix_ids + ids)[: second.reused]
    )
    trained = _trained_tokens(world, reward=0.0)
    assert trained == (len(ids) + len(second.output_ids), -0.5)


def _trained_tokens(world: World, reward: float) -> tuple[int, float]:
    """(tokens, advantage) of this execution in a group with a better one."""
    trees = [ExecutionTree(world.calls), ExecutionTree(world.calls[:1])]
    verdicts = [
        Verdict(kind=VerdictKind.SCORED, ending=Ending.FINISHED, reward=given)
        for given in (reward, reward + 1)
    ]
    group = samples_of_group(
        "g",
        list(zip(("bad", "good"), trees, verdicts, strict=True)),
        j_max=5,
        normalise=False,
        rng=random.Random(0),
    )
    bad = next(sample for sample in group.samples if sample.execution_id == "bad")
    return bad.owned_tokens, bad.advantage
