"""OpenAI Chat Completions, as mini-swe-agent, Qwen Code, OpenCode and the official SDK speak it.

Invariant: every stream ends with a finish_reason and [DONE]; a harness without one asks for ever.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from opengyre.core.reasons import FinishReason
from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.dialects.base import (
    arguments_of,
    arguments_text,
    convert,
    join_texts,
    no_images,
    split_system,
    sse,
)
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall
from opengyre.proxy.refusals import Kind, Refusal, bad

ERRORS = {
    Kind.BAD_REQUEST: "invalid_request_error",
    Kind.UNAUTHENTICATED: "authentication_error",
    Kind.NOT_FOUND: "not_found_error",
    Kind.TOO_LARGE: "invalid_request_error",
    Kind.FAILED: "server_error",
}
PING = b": still at work\n\n"
"""A comment: OpenAI's streams have no ping of their own."""


class Part(Struct):
    type: str
    text: str = ""


class WireFunction(Struct):
    name: str
    arguments: str = ""


class WireCall(Struct):
    id: str
    function: WireFunction


class WireMessage(Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[WireCall] | None = None
    tool_call_id: str = ""
    reasoning_content: str | None = None


class FunctionSpec(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)


class WireTool(Struct):
    type: str
    function: FunctionSpec | None = None


class Format(Struct):
    type: str = ""


class StreamOptions(Struct):
    include_usage: bool = False


class Request(Struct):
    model: str
    messages: list[WireMessage]
    tools: list[WireTool] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    response_format: Format | None = None


class ChatDialect:
    """POST /v1/chat/completions."""

    name = "chat"
    tool_prefix = "call"
    ignored = frozenset({"stream", "stream_options"})

    def parse(self, body: dict[str, Json]) -> Asked:
        request = convert(body, Request)
        if request.stop:
            raise bad("stop sequences are not served; leave stop out")
        if request.n not in {None, 1}:
            raise bad(f"wanted n = 1; found n = {request.n}; ask again for another answer")
        system, messages = split_system([_message(message) for message in request.messages])
        tools = [tool.function for tool in request.tools or [] if tool.function]
        options = request.stream_options
        return Asked(
            conversation=Conversation(
                system,
                tuple(Tool(tool.name, tool.description or "", tool.parameters) for tool in tools),
                messages,
            ),
            model=request.model,
            stream=bool(request.stream),
            max_tokens=request.max_completion_tokens or request.max_tokens,
            server_tools=tuple(tool.type for tool in request.tools or [] if not tool.function),
            output_format=request.response_format.type if request.response_format else None,
            include_usage=bool(options and options.include_usage),
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Json]:
        message = answer.message
        told: dict[str, Json] = {"role": "assistant", "content": message.text or None}
        if message.thinking:
            told["reasoning_content"] = message.thinking
        if message.calls:
            told["tool_calls"] = [_call(call) for call in message.calls]
        choice: Json = {
            "index": 0,
            "message": told,
            "finish_reason": _finish_reason(answer),
            "logprobs": None,
        }
        return {
            **_envelope(asked, answer.call_id, "chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
        }

    def opening(self, asked: Asked, job: Job) -> bytes:
        return _chunk(asked, job.call_id, {"role": "assistant", "content": ""})

    def ping(self) -> bytes:
        return PING

    def events(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        message, call_id = answer.message, answer.call_id
        if message.thinking:
            yield _chunk(asked, call_id, {"reasoning_content": message.thinking})
        if message.text:
            yield _chunk(asked, call_id, {"content": message.text})
        for index, call in enumerate(message.calls):
            yield _chunk(asked, call_id, {"tool_calls": [{"index": index, **_call(call)}]})
        yield _chunk(asked, call_id, {}, _finish_reason(answer))
        if asked.include_usage:
            envelope = _envelope(asked, call_id, "chat.completion.chunk")
            yield sse({**envelope, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def error(self, refusal: Refusal) -> dict[str, Json]:
        return openai_error(refusal)


def openai_error(refusal: Refusal) -> dict[str, Json]:
    """The body of a refusal in both of OpenAI's dialects."""
    code = "context_length_exceeded" if refusal.context_full else None
    return {
        "error": {
            "message": refusal.message,
            "type": ERRORS[refusal.kind],
            "param": None,
            "code": code,
        }
    }


def _message(message: WireMessage) -> Message:
    text = _text(message.content)
    match message.role:
        case "system" | "developer":
            return Message("system", text)
        case "user":
            return Message("user", text)
        case "tool":
            return Message("tool", text, call_id=message.tool_call_id)
        case "assistant":
            calls = tuple(
                ToolCall(call.id, call.function.name, arguments_of(call.function.arguments))
                for call in message.tool_calls or []
            )
            return Message("assistant", text, message.reasoning_content or "", calls)
        case _:
            raise bad(
                "wanted role system, developer, user, assistant or tool; "
                f"found {message.role!r} in messages"
            )


def _text(content: str | list[Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if any(part.type not in {"text", "refusal"} for part in content):
        raise no_images()
    return join_texts([part.text for part in content])


def _call(call: ToolCall) -> dict[str, Json]:
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
    }


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
    }


def _finish_reason(answer: Answer) -> str:
    if answer.finish is FinishReason.LENGTH:
        return "length"
    return "tool_calls" if answer.message.calls else "stop"
