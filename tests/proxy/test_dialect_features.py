"""What docs/dialects.md offers, through the official clients and a real socket."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import anthropic
import openai
import pytest

from tests.proxy.conftest import FAMILY, KEY, Start, World, tool_call
from tests.proxy.test_sdks import BASH, FUNCTION, prove_one_line

T = TypeVar("T")
ASK: Any = [{"role": "user", "content": "Hi"}]
THOUGHT = "<think>\nLook first\n</think>\n\nI look."


def named_call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


async def beside(world: World, work: Callable[[anthropic.Anthropic, openai.OpenAI], T]) -> T:
    """The synchronous clients, in a thread: the server has this one."""

    def run() -> T:
        with (
            anthropic.Anthropic(base_url=world.url, api_key=KEY, max_retries=0) as claude,
            openai.OpenAI(base_url=f"{world.url}/v1", api_key=KEY, max_retries=0) as gpt,
        ):
            return work(claude, gpt)

    return await asyncio.to_thread(run)


async def test_synchronous_clients_stream_and_wait(start: Start) -> None:
    world = await start(["One.", "Two.", "Three.", "Four.", "Five.", "Six."])

    def work(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> list[str]:
        message: Any = claude.messages.create(model="m", max_tokens=9, messages=ASK)
        texts = [message.content[0].text]
        with claude.messages.stream(model="m", max_tokens=9, messages=ASK) as running:
            texts.append("".join(running.text_stream))
        chat = gpt.chat.completions.create(model="m", messages=ASK)
        texts.append(chat.choices[0].message.content or "")
        chunks = gpt.chat.completions.create(
            model="m", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        *parts, last = list(chunks)
        texts.append("".join(part.choices[0].delta.content or "" for part in parts))
        assert last.usage
        assert last.usage.completion_tokens == len(world.calls[3].output_ids)
        texts.append(gpt.responses.create(model="m", input="Hi").output_text)
        with gpt.responses.stream(model="m", input="Hi") as events:
            numbers = [event.sequence_number for event in events]
            texts.append(events.get_final_response().output_text)
        assert numbers == list(range(len(numbers)))
        return texts

    assert await beside(world, work) == ["One.", "Two.", "Three.", "Four.", "Five.", "Six."]


async def test_thinking_reaches_each_client_in_its_own_form_and_is_counted(start: Start) -> None:
    world = await start([THOUGHT] * 4)

    def work(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> list[int]:
        message: Any = claude.messages.create(model="m", max_tokens=99, messages=ASK)
        thinking, text = message.content
        assert (thinking.thinking, text.text) == ("Look first", "I look.")
        assert thinking.signature
        hidden: Any = claude.messages.create(
            model="m",
            max_tokens=99,
            messages=ASK,
            thinking={"type": "adaptive", "display": "omitted"},
        )
        assert hidden.content[0].thinking == ""
        chat: Any = gpt.chat.completions.create(model="m", messages=ASK)
        assert chat.choices[0].message.reasoning_content == "Look first"
        response: Any = gpt.responses.create(
            model="m", input="Hi", include=["reasoning.encrypted_content"]
        )
        reasoning = response.output[0]
        assert reasoning.summary[0].text == "Look first"
        assert "Look first" not in reasoning.encrypted_content
        return [
            message.usage.output_tokens_details.thinking_tokens,
            chat.usage.completion_tokens_details.reasoning_tokens,
            response.usage.output_tokens_details.reasoning_tokens,
        ]

    counted = await beside(world, work)
    assert counted == [len(FAMILY.encode("<think>\nLook first"))] * 3


async def test_hidden_thinking_is_found_again_word_for_word(start: Start) -> None:
    world = await start([THOUGHT, "Done."])

    def work(claude: anthropic.Anthropic, _gpt: openai.OpenAI) -> None:
        ask: Any = {
            "model": "m",
            "max_tokens": 99,
            "thinking": {"type": "adaptive", "display": "omitted"},
        }
        first: Any = claude.messages.create(messages=ASK, **ask)
        claude.messages.create(
            messages=[*ASK, {"role": "assistant", "content": first.content}, *ASK], **ask
        )

    await beside(world, work)
    prove_one_line(world)
    assert "Look first" in FAMILY.decode(world.generator.requests[1].prompt_ids)


async def test_free_text_and_namespaced_tools_are_one_line_in_responses(start: Start) -> None:
    calls = [named_call("patch", '{"input": "*** a"}'), named_call("agents.spawn", '{"task": "t"}')]
    world = await start(["\n".join(calls), "Done."])
    spawn: Any = {"type": "function", "name": "spawn", "parameters": {}, "strict": False}
    tools: Any = [
        {"type": "custom", "name": "patch", "description": "Patch it"},
        {"type": "namespace", "name": "agents", "description": "Agents.", "tools": [spawn]},
        {"type": "web_search"},
    ]

    def work(_claude: anthropic.Anthropic, gpt: openai.OpenAI) -> str:
        with gpt.responses.stream(model="m", input=ASK, tools=tools) as running:
            output: Any = running.get_final_response().output
        patch, spawned = output
        assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", "*** a")
        assert spawned.type == "function_call"
        assert (spawned.namespace, spawned.name) == ("agents", "spawn")
        outputs: Any = [
            {"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "ok"},
            {"type": "function_call_output", "call_id": spawned.call_id, "output": "ok"},
        ]
        items: Any = [*ASK, patch, spawned, *outputs]
        raw = gpt.responses.with_raw_response.create(model="m", input=items, tools=tools)
        assert raw.headers["x-opengyre-not-applied"] == "tools[2]"
        return raw.parse().output_text

    assert await beside(world, work) == "Done."
    prove_one_line(world)
    assert "Agents." in FAMILY.decode(world.generator.requests[0].prompt_ids)


async def test_free_text_tools_are_one_line_in_chat(start: Start) -> None:
    world = await start([named_call("patch", '{"input": "*** a"}'), "Done."])
    tools: Any = [{"type": "custom", "custom": {"name": "patch"}}]

    def work(_claude: anthropic.Anthropic, gpt: openai.OpenAI) -> None:
        reply: Any = gpt.chat.completions.create(model="m", messages=ASK, tools=tools)
        message = reply.choices[0].message
        (call,) = message.tool_calls
        assert (call.type, call.custom.name, call.custom.input) == ("custom", "patch", "*** a")
        result = {"role": "tool", "tool_call_id": call.id, "content": "ok"}
        messages: Any = [*ASK, message, result]
        gpt.chat.completions.create(model="m", messages=messages, tools=tools)

    await beside(world, work)
    prove_one_line(world)


async def test_who_forbids_calls_gets_text(start: Start) -> None:
    world = await start([tool_call("ls")] * 3)
    function: Any = {"type": "function", "function": FUNCTION}
    flat: Any = {"type": "function", "strict": False, **FUNCTION}

    def work(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> list[Any]:
        message = claude.messages.create(
            model="m", max_tokens=99, messages=ASK, tools=[BASH], tool_choice={"type": "none"}
        )
        chat = gpt.chat.completions.create(
            model="m", messages=ASK, tools=[function], tool_choice="none"
        )
        response = gpt.responses.create(
            model="m",
            input="Hi",
            tools=[flat],
            tool_choice="none",
        )
        return [message.stop_reason, chat.choices[0].finish_reason, response.output_text]

    stop, finish, text = await beside(world, work)
    assert (stop, finish) == ("end_turn", "stop")
    assert "Bash" in text
    for request in world.generator.requests:
        assert "Run it" not in FAMILY.decode(request.prompt_ids)


async def test_what_the_run_decides_is_named_and_every_response_has_an_id(start: Start) -> None:
    world = await start(["One.", "Two.", "Three."])

    def work(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> list[Any]:
        message = claude.messages.with_raw_response.create(
            model="m", max_tokens=9, messages=ASK, extra_body={"temperature": 0.1, "new_thing": 1}
        )
        chat = gpt.chat.completions.with_raw_response.create(
            model="m", messages=ASK, seed=3, parallel_tool_calls=False
        )
        response = gpt.responses.with_raw_response.create(
            model="m", input="Hi", reasoning={"effort": "low"}, store=False
        )
        assert message.headers["request-id"].startswith("req")
        assert chat.parse()._request_id == chat.headers["x-request-id"]
        assert response.parse().reasoning.effort == "low"  # type: ignore[union-attr]
        return [each.headers["x-opengyre-not-applied"] for each in (message, chat, response)]

    assert await beside(world, work) == [
        "temperature, new_thing",
        "parallel_tool_calls, seed",
        "reasoning.effort",
    ]


async def test_context_edits_are_answered_with_none_applied(start: Start) -> None:
    world = await start(["One."])

    def work(claude: anthropic.Anthropic, _gpt: openai.OpenAI) -> Any:
        return claude.beta.messages.create(
            model="m",
            max_tokens=9,
            messages=ASK,
            betas=["context-management-2025-06-27"],
            context_management={"edits": [{"type": "clear_tool_uses_20250919"}]},
        )

    reply = await beside(world, work)
    assert reply.context_management.applied_edits == []


async def test_models_are_listed_and_any_name_is_one(start: Start) -> None:
    world = await start([])

    def work(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> list[str]:
        return [
            *(model.id for model in claude.models.list()),
            claude.models.retrieve("claude-x").id,
            *(model.id for model in gpt.models.list()),
            gpt.models.retrieve("some/name").id,
        ]

    assert await beside(world, work) == ["policy", "claude-x", "policy", "some/name"]


async def test_tokens_are_counted_as_the_call_would(start: Start) -> None:
    world = await start(["One."])

    def work(_claude: anthropic.Anthropic, gpt: openai.OpenAI) -> tuple[int, Any]:
        counted = gpt.responses.input_tokens.count(model="m", input="Hi")
        return counted.input_tokens, gpt.responses.create(model="m", input="Hi").usage

    counted, usage = await beside(world, work)
    assert counted == usage.input_tokens == len(world.generator.requests[0].prompt_ids)


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_system_words_in_the_middle_stay_there(start: Start, role: str) -> None:
    world = await start(["One.", "Two.", "Three."])
    middle: Any = [*ASK, {"role": "assistant", "content": "Yes?"}, {"role": role, "content": "Be."}]

    def work(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> None:
        gpt.chat.completions.create(model="m", messages=[*middle, *ASK])
        gpt.responses.create(model="m", input=[*middle, *ASK])
        if role == "system":
            claude.messages.create(model="m", max_tokens=9, messages=[*middle, *ASK])

    await beside(world, work)
    prompts = {tuple(request.prompt_ids) for request in world.generator.requests}
    assert len(prompts) == 1
    (prompt,) = prompts
    assert "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user" in FAMILY.decode(list(prompt))
