"""Every refusal reaches the official clients as their own typed error, with an id and advice."""

import asyncio
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from opengyre.core.errors import EngineError
from opengyre.proxy.fake_journal import MemoryJournal
from tests.proxy.conftest import KEY, Start, World

ASK: Any = [{"role": "user", "content": "Hi"}]


def claude(world: World, key: str = KEY) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=world.url, api_key=key, max_retries=0)


def gpt(world: World, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key=key, max_retries=0)


async def ask_claude(world: World, key: str = KEY, **more: Any) -> Any:
    async with claude(world, key) as client:
        return await client.messages.create(
            **{"model": "m", "max_tokens": 9, "messages": ASK, **more}
        )


async def ask_chat(world: World, key: str = KEY, **more: Any) -> Any:
    async with gpt(world, key) as client:
        return await client.chat.completions.create(**{"model": "m", "messages": ASK, **more})


async def ask_responses(world: World, key: str = KEY, **more: Any) -> Any:
    async with gpt(world, key) as client:
        return await client.responses.create(**{"model": "m", "input": ASK, **more})


ASKS = [(ask_claude, anthropic), (ask_chat, openai), (ask_responses, openai)]


def prove_advice(error: Any, *, retry: bool) -> None:
    headers = error.response.headers
    assert headers["x-should-retry"] == ("true" if retry else "false")
    assert error.request_id.startswith("req")
    assert error.request_id in {headers.get("request-id"), headers.get("x-request-id")}


@pytest.mark.parametrize(("ask", "vendor"), ASKS)
async def test_our_fault_is_an_internal_error_that_may_be_asked_again(
    start: Start, ask: Any, vendor: Any
) -> None:
    world = await start([EngineError("the cell is gone"), "Hello."])
    with pytest.raises(vendor.InternalServerError, match="the cell is gone") as found:
        await ask(world)
    prove_advice(found.value, retry=True)
    assert "retry-after" not in found.value.response.headers
    await ask(world)


@pytest.mark.parametrize(("ask", "vendor"), ASKS)
async def test_strangers_and_the_dead_are_told_not_to_ask_again(
    start: Start, ask: Any, vendor: Any
) -> None:
    world = await start([])
    with pytest.raises(vendor.AuthenticationError, match="another key") as found:
        await ask(world, "other")
    prove_advice(found.value, retry=False)
    await world.executions.close("e1")
    with pytest.raises(vendor.NotFoundError, match="no execution e1") as lost:
        await ask(world)
    prove_advice(lost.value, retry=False)


@pytest.mark.parametrize(("ask", "vendor"), ASKS)
async def test_too_many_calls_at_once_are_rate_limited(start: Start, ask: Any, vendor: Any) -> None:
    world = await start(["Hello."], max_live_calls=1)
    world.generator.go.clear()
    first = asyncio.ensure_future(ask(world))
    await world.generator.waiting.wait()
    with pytest.raises(vendor.RateLimitError, match="1 of this execution are in flight") as found:
        await ask(world, model="other")
    prove_advice(found.value, retry=True)
    assert int(found.value.response.headers["retry-after"]) > 0
    world.generator.go.set()
    await first


@pytest.mark.parametrize(("ask", "vendor"), ASKS)
async def test_a_proxy_about_to_restart_is_overloaded_and_says_for_how_long(
    start: Start, ask: Any, vendor: Any
) -> None:
    world = await start([], journal=MemoryJournal())
    await world.executions.suspend()
    wanted = getattr(vendor, "OverloadedError", vendor.InternalServerError)
    with pytest.raises(wanted, match="being restarted") as found:
        await ask(world)
    assert found.value.status_code == (529 if vendor is anthropic else 503)
    prove_advice(found.value, retry=True)
    assert int(found.value.response.headers["retry-after"]) > 0


async def test_a_client_that_may_retry_does(start: Start) -> None:
    world = await start([EngineError("lost"), "Hello."])
    async with gpt(world).with_options(max_retries=1) as client:
        reply = await client.chat.completions.create(model="m", messages=ASK)
    assert reply.choices[0].message.content == "Hello."


PICTURE: Any = {"type": "base64", "media_type": "image/png", "data": "AA=="}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": PICTURE},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
        {
            "type": "tool_result",
            "tool_use_id": "t",
            "content": [{"type": "image", "source": PICTURE}],
        },
        {"type": "search_result", "source": "s", "title": "t", "content": []},
    ],
)
async def test_anthropics_media_are_refused_with_their_place(start: Start, block: Any) -> None:
    world = await start([])
    messages = [{"role": "user", "content": [{"type": "text", "text": "See"}, block]}]
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[1\]") as found:
        await ask_claude(world, messages=messages)
    prove_advice(found.value, retry=False)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f"}},
    ],
)
async def test_chats_media_are_refused_with_their_place(start: Start, part: Any) -> None:
    world = await start([])
    with pytest.raises(openai.BadRequestError, match="this policy reads text only") as found:
        await ask_chat(world, messages=[{"role": "user", "content": [part]}])
    assert found.value.param == "messages[0].content[0]"


@pytest.mark.parametrize(
    ("item", "place"),
    [
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
            "input[0].content[0]",
        ),
        (
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_file", "file_id": "f"}],
            },
            "input[0].output[0]",
        ),
        ({"type": "item_reference", "id": "i"}, "input[0]"),
        ({"type": "message", "role": "dog", "content": "x"}, "input[0].role"),
    ],
)
async def test_responses_items_are_refused_with_their_place(
    start: Start, item: Any, place: str
) -> None:
    world = await start([])
    with pytest.raises(openai.BadRequestError) as found:
        await ask_responses(world, input=[item])
    assert found.value.param == place


@pytest.mark.parametrize(
    ("ask", "vendor", "more", "param"),
    [
        (ask_claude, anthropic, {"stop_sequences": ["x"]}, "stop_sequences"),
        (ask_claude, anthropic, {"tool_choice": {"type": "any"}}, "tool_choice.type"),
        (ask_claude, anthropic, {"max_tokens": 0}, "max_tokens"),
        (ask_claude, anthropic, {"messages": []}, "messages"),
        (
            ask_claude,
            anthropic,
            {"messages": [*ASK, {"role": "assistant", "content": "I"}]},
            "messages[1]",
        ),
        (
            ask_claude,
            anthropic,
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
            "output_config.format",
        ),
        (ask_chat, openai, {"n": 2}, "n"),
        (ask_chat, openai, {"logprobs": True}, "logprobs"),
        (ask_chat, openai, {"stop": ["x"]}, "stop"),
        (ask_chat, openai, {"tool_choice": "required"}, "tool_choice"),
        (ask_chat, openai, {"response_format": {"type": "json_object"}}, "response_format.type"),
        (ask_chat, openai, {"max_completion_tokens": -1}, "max_completion_tokens"),
        (ask_responses, openai, {"previous_response_id": "r"}, "previous_response_id"),
        (ask_responses, openai, {"background": True}, "background"),
        (ask_responses, openai, {"truncation": "auto"}, "truncation"),
        (ask_responses, openai, {"include": ["message.output_text.logprobs"]}, "include[0]"),
        (
            ask_responses,
            openai,
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
            "text.format.type",
        ),
    ],
)
async def test_what_is_not_served_is_refused_by_its_name(
    start: Start, ask: Any, vendor: Any, more: dict[str, Any], param: str
) -> None:
    world = await start([])
    with pytest.raises(vendor.BadRequestError) as found:
        await ask(world, **more)
    assert param in found.value.message
    if vendor is openai:
        assert found.value.param == param
    assert (await world.executions.close("e1")).refused_calls == 1


async def test_unknown_paths_are_refused_in_the_words_of_their_api(start: Start) -> None:
    world = await start([])
    async with claude(world) as client:
        with pytest.raises(anthropic.NotFoundError, match="batches is not served") as found:
            await client.messages.batches.list()
        assert found.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
        prove_advice(found.value, retry=False)
    async with gpt(world) as other:
        with pytest.raises(openai.NotFoundError, match="resp_1 is not served"):
            await other.responses.retrieve("resp_1")
        with pytest.raises(openai.APIStatusError, match="Method Not Allowed"):
            await other.chat.completions.list()


async def test_a_compressed_body_is_refused_by_name(start: Start) -> None:
    world = await start([])
    headers = {"x-api-key": KEY, "content-encoding": "zstd"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.url}/v1/responses", data=b"x", headers=headers) as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "content-encoding"
