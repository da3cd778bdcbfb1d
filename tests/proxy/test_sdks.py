"""The official SDKs against a real local port: tool loops in three dialects, errors typed."""

import json
from typing import Any

import anthropic
import openai
import pytest

from opengyre.core.errors import EngineError
from opengyre.tree.record import ExecutionTree
from tests.proxy.conftest import FAMILY, KEY, Start, World, fold, tool_call

BASH: Any = {
    "name": "Bash",
    "description": "Run it",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}
FUNCTION: Any = {
    "name": "Bash",
    "description": "Run it",
    "parameters": BASH["input_schema"],
}
SCRIPT = [
    f"<think>\nLook first\n</think>\n\nI look.\n{tool_call('ls')}",
    tool_call("cat main.py") + "\n" + tool_call("pwd"),
    "All done.",
]


def prove_one_line(world: World) -> None:
    """Each call goes on from the one before, and the prompts are what the engine was given."""
    ExecutionTree(world.calls).check()
    assert [call.fork for call in world.calls] == [None] * len(world.calls)
    for before, call in zip(world.calls[:-1], world.calls[1:], strict=True):
        assert call.parent_id == before.call_id
        assert call.reused == len(fold(world.calls, before.call_id))
    for call, request in zip(world.calls, world.generator.requests, strict=True):
        assert fold(world.calls, call.call_id) == [*request.prompt_ids, *call.output_ids]


@pytest.mark.parametrize("stream", [True, False])
async def test_anthropic_tool_loop_is_one_line(start: Start, stream: bool) -> None:
    world = await start(SCRIPT)
    client = anthropic.AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=0)
    reply: Any = None
    messages: Any = [{"role": "user", "content": "Fix it."}]
    for turn in range(3):
        arguments: Any = {"model": "any", "max_tokens": 300, "tools": [BASH], "messages": messages}
        if stream:
            async with client.messages.stream(**arguments) as running:
                reply = await running.get_final_message()
        else:
            reply = await client.messages.create(**arguments)
        request = world.generator.requests[turn]
        assert reply.usage.input_tokens == len(request.prompt_ids)
        assert reply.usage.output_tokens == len(world.calls[turn].output_ids)
        messages.append({"role": "assistant", "content": [b.model_dump() for b in reply.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"out {block.input}"}
            for block in reply.content
            if block.type == "tool_use"
        ]
        if results:
            assert reply.stop_reason == "tool_use"
            messages.append({"role": "user", "content": results})
    assert reply.stop_reason == "end_turn"
    assert [block.text for block in reply.content] == ["All done."]
    prove_one_line(world)
    assert (await world.executions.close("e1")).complete_replies == 3
    await client.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_chat_tool_loop_is_one_line(start: Start, stream: bool) -> None:
    world = await start(SCRIPT)
    client = openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key=KEY, max_retries=0)
    reply: Any = None
    messages: Any = [{"role": "system", "content": "Work."}, {"role": "user", "content": "Fix."}]
    for _ in range(3):
        arguments: Any = {
            "model": "any",
            "messages": messages,
            "tools": [{"type": "function", "function": FUNCTION}],
        }
        if stream:
            async with client.chat.completions.stream(**arguments) as running:
                reply = await running.get_final_completion()
        else:
            reply = await client.chat.completions.create(**arguments)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        for call in message.tool_calls or []:
            assert set(json.loads(call.function.arguments)) == {"command"}
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "out"})
    assert reply.choices[0].finish_reason == "stop"
    assert reply.choices[0].message.content == "All done."
    prove_one_line(world)
    await client.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_responses_tool_loop_is_one_line(start: Start, stream: bool) -> None:
    world = await start(SCRIPT)
    client = openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key=KEY, max_retries=0)
    reply: Any = None
    items: Any = [
        {"type": "message", "role": "developer", "content": "Work."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix."}]},
    ]
    for _ in range(3):
        arguments: Any = {
            "model": "any",
            "input": items,
            "tools": [{"type": "function", "strict": False, **FUNCTION}],
        }
        if stream:
            async with client.responses.stream(**arguments) as running:
                reply = await running.get_final_response()
        else:
            reply = await client.responses.create(**arguments)
        items += [item.model_dump(exclude_none=True) for item in reply.output]
        items += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "out"}
            for item in reply.output
            if item.type == "function_call"
        ]
    assert reply.status == "completed"
    assert reply.output_text == "All done."
    prove_one_line(world)
    await client.close()


async def test_count_tokens_is_the_prompt_of_the_call(start: Start) -> None:
    world = await start(["Hello."])
    client = anthropic.AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=0)
    messages: Any = [{"role": "user", "content": "Hi"}]
    counted = await client.messages.count_tokens(model="m", messages=messages, tools=[BASH])
    await client.messages.create(model="m", max_tokens=9, messages=messages, tools=[BASH])
    assert counted.input_tokens == len(world.generator.requests[0].prompt_ids)
    await client.close()


async def test_errors_are_typed_for_anthropic(start: Start) -> None:
    world = await start([EngineError("the cell is gone"), "Hello"], context_tokens=60)
    client = anthropic.AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=0)

    async def ask(text: object, **more: Any) -> object:
        messages: Any = [{"role": "user", "content": text}]
        return await client.messages.create(model="m", max_tokens=9, messages=messages, **more)

    with pytest.raises(anthropic.InternalServerError, match="the cell is gone"):
        await ask("Hi")
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 60"):
        await ask("word " * 200)
    with pytest.raises(anthropic.BadRequestError, match="stop_sequences"):
        await ask("Hi", stop_sequences=["x"])
    image = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    with pytest.raises(anthropic.BadRequestError, match="reads text only"):
        await ask([{"type": "image", "source": image}])
    stranger = anthropic.AsyncAnthropic(base_url=world.url, api_key="other", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError, match="another key"):
        await stranger.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        )
    await ask("Hi")
    report = await world.executions.close("e1")
    assert (report.failed_calls, report.refused_calls, report.complete_replies) == (1, 3, 1)
    assert report.context_limit_hit
    assert report.calls == 1
    with pytest.raises(anthropic.NotFoundError, match="no execution e1"):
        await ask("Hi")
    await client.close()
    await stranger.close()


async def test_errors_are_typed_for_openai(start: Start) -> None:
    world = await start(["Hello"], context_tokens=60)
    client = openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key=KEY, max_retries=0)
    with pytest.raises(openai.BadRequestError) as found:
        await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "word " * 200}]
        )
    assert found.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        await client.responses.create(model="m", input="Hi", previous_response_id="r")
    assert [model.id async for model in await client.models.list()] == ["policy"]
    await client.close()


async def test_a_cut_answer_says_so(start: Start) -> None:
    ids = FAMILY.encode("one two three four")
    world = await start([ids, ids, ids])
    client = anthropic.AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=0)
    other = openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key=KEY, max_retries=0)
    ask: Any = [{"role": "user", "content": "Hi"}]
    reply: Any = await client.messages.create(model="m", max_tokens=3, messages=ask)
    assert (reply.stop_reason, reply.usage.output_tokens) == ("max_tokens", 3)
    chat = await other.chat.completions.create(model="m", max_tokens=3, messages=ask)
    assert chat.choices[0].finish_reason == "length"
    response = await other.responses.create(model="m", max_output_tokens=3, input="Hi")
    assert response.status == "incomplete"
    await client.close()
    await other.close()
