"""OpenAI Chat Completions, as mini-swe-agent, Qwen Code, OpenCode and the official SDK speak it.

Invariant: every stream ends with a finish_reason and [DONE]; a harness without one asks for ever.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from opengyre.core.reasons import FinishReason
from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.dialects.base import (
    Part,
    arguments_of,
    arguments_text,
    convert,
    free_text,
    positive,
    split_system,
    sse,
    text_of,
    told,
)
from opengyre.proxy.dialects.chat_offers import CHAT
from opengyre.proxy.dialects.offers import examine
from opengyre.proxy.dialects.openai import FREE_TEXT, FreeFormat, OpenAIDialect, calls_allowed
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall
from opengyre.proxy.refusals import bad


class WireFunction(Struct):
    name: str
    arguments: str = ""


class WireFreeText(Struct):
    name: str
    input: str = ""


class WireCall(Struct):
    id: str
    function: WireFunction | None = None
    custom: WireFreeText | None = None


class WireMessage(Struct):
    role: str
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[WireCall] | None = None
    tool_call_id: str = ""
    reasoning_content: str | None = None
    reasoning: str | None = None
    function_call: dict[str, Any] | None = None


class ToolSpec(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: FreeFormat = field(default_factory=FreeFormat)


class WireTool(Struct):
    type: str
    function: ToolSpec | None = None
    custom: ToolSpec | None = None


class StreamOptions(Struct):
    include_usage: bool = False


class Request(Struct):
    model: str
    messages: list[WireMessage]
    tools: list[WireTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class ChatDialect(OpenAIDialect):
    """POST /v1/chat/completions."""

    name = "chat"
    ignored = frozenset({"stream", "stream_options"})

    def parse(self, body: dict[str, Json]) -> Asked:
        not_applied = examine(body, CHAT)
        request = convert(body, Request)
        if not request.messages:
            raise bad("wanted at least one message", "messages")
        tools, options = request.tools or [], request.stream_options
        allowed = calls_allowed(request.tool_choice)
        system, messages = split_system(
            [_message(message, f"messages[{i}]") for i, message in enumerate(request.messages)]
        )
        newer = positive(request.max_completion_tokens, "max_completion_tokens")
        return Asked(
            conversation=Conversation(system, tuple(_tools(tools)) if allowed else (), messages),
            model=request.model,
            stream=bool(request.stream),
            max_tokens=newer or positive(request.max_tokens, "max_tokens"),
            server_tools=tuple(tool.type for tool in tools if not (tool.function or tool.custom)),
            not_applied=(*not_applied, *_inner_not_applied(request)),
            calls_allowed=allowed,
            include_usage=bool(options and options.include_usage),
            custom_tools=frozenset(tool.custom.name for tool in tools if tool.custom),
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Json]:
        message = told(asked, answer)
        heard: dict[str, Json] = {
            "role": "assistant",
            "content": message.text or None,
            "refusal": None,
        }
        if message.thinking:
            heard["reasoning_content"] = message.thinking
        if message.calls:
            heard["tool_calls"] = [_call(asked, call) for call in message.calls]
        choice: Json = {
            "index": 0,
            "message": heard,
            "finish_reason": _finish_reason(answer, message),
            "logprobs": None,
        }
        return {
            **_envelope(asked, answer.call_id, "chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
        }

    def opening(self, asked: Asked, job: Job) -> bytes:
        return _chunk(asked, job.call_id, {"role": "assistant", "content": ""})

    def events(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        message, call_id = told(asked, answer), answer.call_id
        if message.thinking:
            yield _chunk(asked, call_id, {"reasoning_content": message.thinking})
        if message.text:
            yield _chunk(asked, call_id, {"content": message.text})
        for index, call in enumerate(message.calls):
            calls: Json = [{"index": index, **_call(asked, call)}]
            yield _chunk(asked, call_id, {"tool_calls": calls})
        yield _chunk(asked, call_id, {}, _finish_reason(answer, message))
        if asked.include_usage:
            envelope = _envelope(asked, call_id, "chat.completion.chunk")
            yield sse({**envelope, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"


def _tools(tools: Sequence[WireTool]) -> Iterator[Tool]:
    for tool in tools:
        if tool.function:
            spec = tool.function
            yield Tool(spec.name, spec.description or "", spec.parameters or {})
        elif tool.custom:
            yield Tool(tool.custom.name, tool.custom.description or "", FREE_TEXT)


def _inner_not_applied(request: Request) -> Iterator[str]:
    if any(message.name and message.role != "tool" for message in request.messages):
        yield "messages.name"
    for index, tool in enumerate(request.tools or []):
        if tool.function and tool.function.strict:
            yield f"tools[{index}].function.strict"
        elif tool.custom and tool.custom.format.type != "text":
            yield f"tools[{index}].custom.format"
        elif not (tool.function or tool.custom):
            yield f"tools[{index}]"


def _message(message: WireMessage, place: str) -> Message:
    text = text_of(message.content, f"{place}.content")
    match message.role:
        case "system" | "developer":
            return Message("system", text)
        case "user":
            return Message("user", text)
        case "tool":
            return Message("tool", text, call_id=message.tool_call_id)
        case "assistant":
            return _assistant(message, text, place)
        case role:
            raise bad(
                f"wanted system, developer, user, assistant or tool; found {role!r}",
                f"{place}.role",
            )


def _assistant(message: WireMessage, text: str, place: str) -> Message:
    if message.function_call:
        raise bad("the older form of tool_calls is not served", f"{place}.function_call")
    calls = tuple(
        _tool_call(call, f"{place}.tool_calls[{index}]")
        for index, call in enumerate(message.tool_calls or [])
    )
    return Message("assistant", text, message.reasoning_content or message.reasoning or "", calls)


def _tool_call(call: WireCall, place: str) -> ToolCall:
    if call.function:
        return ToolCall(call.id, call.function.name, arguments_of(call.function.arguments))
    if call.custom:
        return ToolCall(call.id, call.custom.name, {"input": call.custom.input})
    raise bad("wanted a call of a function or a custom tool; found neither", place)


def _call(asked: Asked, call: ToolCall) -> dict[str, Json]:
    if call.name in asked.custom_tools:
        spoken: Json = {"name": call.name, "input": free_text(call)}
        return {"id": call.call_id, "type": "custom", "custom": spoken}
    function: Json = {"name": call.name, "arguments": arguments_text(call.arguments)}
    return {"id": call.call_id, "type": "function", "function": function}


def _envelope(asked: Asked, call_id: str, kind: str) -> dict[str, Json]:
    return {"id": f"chatcmpl-{call_id}", "object": kind, "created": 0, "model": asked.model}


def _chunk(asked: Asked, call_id: str, delta: dict[str, Json], finish: str | None = None) -> bytes:
    choice: Json = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return sse({**_envelope(asked, call_id, "chat.completion.chunk"), "choices": [choice]})


def _usage(answer: Answer) -> dict[str, Json]:
    return {
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.prompt_tokens + answer.output_tokens,
        "completion_tokens_details": {"reasoning_tokens": answer.thinking_tokens},
    }


def _finish_reason(answer: Answer, message: Message) -> str:
    if answer.finish is FinishReason.LENGTH:
        return "length"
    return "tool_calls" if message.calls else "stop"
