"""However deep JSON is nested, a request is answered or refused, and a sampled call stays recorded."""

from typing import Any

import aiohttp
import pytest

from opengyre.proxy.messages import DEEPEST, Message, ToolCall, too_deep
from tests.proxy.conftest import FAMILY, KEY, Start
from tests.proxy.families_for_tests import BASH, SMALL

DEPTHS = [DEEPEST + 20, 490, 990, 100_000]
"""Of ours, of a walk in Python, of the two decoders."""


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def bodies(depth: int) -> dict[str, str]:
    said = '"messages": [{"role": "user", "content": "x"}]'
    call = f'{{"type": "tool_use", "id": "t", "name": "B", "input": {{"a": {nested(depth)}}}}}'
    return {
        "metadata": f'{{"model": "m", "max_tokens": 9, {said}, "metadata": {nested(depth)}}}',
        "content": f'{{"model": "m", "max_tokens": 9, "messages": {nested(depth)}}}',
        "input": f'{{"model": "m", "max_tokens": 9, "messages": [{{"role": "assistant", "content": [{call}]}}]}}',
        "odd": f'{{"model": "m", "max_tokens": 9, {said}, "x": "\\ud800", "metadata": {nested(depth)}}}',
    }


def test_depth_is_counted_in_lists_and_objects() -> None:
    value: Any = 1
    for level in range(DEEPEST):
        value = [value, 2] if level % 2 else {"a": value}
    assert not too_deep(value)
    assert too_deep([value])


@pytest.mark.parametrize("depth", DEPTHS)
async def test_a_request_nested_too_deeply_is_the_programs_fault(start: Start, depth: int) -> None:
    world = await start(["Yes."])
    headers = {"x-api-key": KEY}
    async with aiohttp.ClientSession(headers=headers) as client:
        for name, body in bodies(depth).items():
            async with client.post(f"{world.url}/v1/messages", data=body) as response:
                told = await response.json()
                assert response.status == 400, name
                assert f"at most {DEEPEST} levels" in told["error"]["message"], name
        counts = world.executions.report("e1")
        assert (counts.failed_calls, counts.refused_calls) == (0, len(bodies(depth)))


@pytest.mark.parametrize("depth", DEPTHS)
async def test_arguments_nested_too_deeply_are_a_text(start: Start, depth: int) -> None:
    world = await start(["Yes."], context_tokens=1_000_000)
    function = {"name": "B", "arguments": f'{{"a": {nested(depth)}}}'}
    messages = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
        body = {"model": "m", "messages": messages}
        async with client.post(f"{world.url}/v1/chat/completions", json=body) as response:
            assert response.status == 200
    assert nested(depth) in FAMILY.decode(world.calls[0].suffix_ids)


async def test_half_a_surrogate_pair_in_arguments_is_mended(start: Start) -> None:
    world = await start(["Yes."])
    function = {"name": "B", "arguments": '{"a": "\\ud800"}'}
    messages = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
        url = f"{world.url}/v1/chat/completions"
        async with client.post(url, json={"model": "m", "messages": messages}) as response:
            assert response.status == 200


@pytest.mark.parametrize("depth", [DEEPEST, 400])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_no_parser_takes_out_arguments_nested_too_deeply(name: str, depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    family = SMALL[name]
    said = Message("assistant", calls=(ToolCall("c", "Bash", {"free": deep}),))
    read = family.parse([*family.encode(family.body((said,), (BASH,))), family.stop_ids[0]])
    assert all(not too_deep(call.arguments) for call in read.calls)
    assert read.calls or read.malformed_calls == 1


async def test_a_sampled_call_nested_too_deeply_is_malformed_and_recorded(start: Start) -> None:
    said = f'<tool_call>\n{{"name": "B", "arguments": {{"a": {nested(DEEPEST)}}}}}\n</tool_call>'
    world = await start([said, "Done."], context_tokens=1_000_000)
    messages: list[dict[str, str]] = [{"role": "user", "content": "x"}]
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
        for _ in range(2):
            url = f"{world.url}/v1/chat/completions"
            async with client.post(url, json={"model": "m", "messages": messages}) as response:
                told = await response.json()
                assert response.status == 200, told
            answer = told["choices"][0]["message"]
            messages += [{"role": "assistant", "content": answer["content"]}]
            messages += [{"role": "user", "content": "Go on."}]
    assert messages[1]["content"] == said
    assert world.calls[0].output_ids == [*FAMILY.encode(said), FAMILY.stop_ids[0]]
    assert [call.fork for call in world.calls] == [None, None]
    assert world.executions.report("e1").malformed_tool_calls == 1
