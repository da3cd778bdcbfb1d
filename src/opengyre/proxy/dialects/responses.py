"""OpenAI Responses, as Codex and the official SDK speak it.

Invariant: the items that go out come back as one assistant message, whatever their number. Tools
inside a namespace are shown to the policy as namespace.name and go out again as both.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
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
from opengyre.proxy.dialects.chat import PING, openai_error
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall
from opengyre.proxy.refusals import Refusal, bad

FREE_TEXT: dict[str, Json] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""The schema that a free-text tool is shown with."""


class Part(Struct):
    type: str
    text: str = ""


class Item(Struct):
    """Any input item; which fields it has depends on its type."""

    type: str = "message"
    role: str = ""
    content: str | list[Part] | None = None
    summary: list[Part] | None = None
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    input: str = ""
    output: str | list[Part] | None = None


class WireTool(Struct):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)


class Format(Struct):
    type: str = ""


class TextOptions(Struct):
    format: Format | None = None


class Request(Struct):
    model: str
    input: str | list[Item]
    instructions: str | None = None
    tools: list[WireTool] | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    text: TextOptions | None = None


class ResponsesDialect:
    """POST /v1/responses."""

    name = "responses"
    tool_prefix = "call"
    ignored = frozenset({"stream", "client_metadata"})

    def parse(self, body: dict[str, Json]) -> Asked:
        request = convert(body, Request)
        if request.previous_response_id:
            raise bad("previous_response_id is not served; send the whole input")
        system, messages = split_system(_messages(request.input), request.instructions or "")
        named = list(_tools(request.tools or []))
        known = {"function", "custom", "namespace"}
        others = [tool for tool in request.tools or [] if tool.type not in known]
        format_ = request.text.format if request.text else None
        return Asked(
            conversation=Conversation(system, tuple(tool for tool, _ in named), messages),
            model=request.model,
            stream=bool(request.stream),
            max_tokens=request.max_output_tokens,
            server_tools=tuple(tool.name or tool.type for tool in others),
            output_format=format_.type if format_ else None,
            custom_tools=frozenset(
                tool.name for tool in request.tools or [] if tool.type == "custom"
            ),
            namespaces={tool.name: names for tool, names in named if names is not None},
        )

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Json]:
        return _response(asked, answer.call_id, answer)

    def opening(self, asked: Asked, job: Job) -> bytes:
        response = _response(asked, job.call_id, None)
        return _event("response.created", 0, {"response": response}) + _event(
            "response.in_progress", 1, {"response": response}
        )

    def ping(self) -> bytes:
        return PING

    def events(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        number = 2
        for index, item in enumerate(_items(asked, answer)):
            for name, fields in _item_events(item, index):
                yield _event(name, number, fields)
                number += 1
        response = _response(asked, answer.call_id, answer)
        yield _event(f"response.{response['status']}", number, {"response": response})

    def error(self, refusal: Refusal) -> dict[str, Json]:
        return openai_error(refusal)


def _messages(given: str | list[Item]) -> list[Message]:
    """Items of the assistant between two other items are one message."""
    if isinstance(given, str):
        return [Message("user", given)]
    messages: list[Message] = []
    for item in given:
        message = _message(item)
        if message.role == "assistant" and messages and messages[-1].role == "assistant":
            message = _merged(messages.pop(), message)
        messages.append(message)
    return messages


def _merged(one: Message, two: Message) -> Message:
    return Message(
        "assistant",
        join_texts([one.text, two.text]),
        join_texts([one.thinking, two.thinking]),
        one.calls + two.calls,
    )


def _message(item: Item) -> Message:
    match item.type:
        case "message":
            return _spoken(item)
        case "reasoning":
            return Message("assistant", thinking=_text(item.summary) or _text(item.content))
        case "function_call":
            name = f"{item.namespace}.{item.name}" if item.namespace else item.name
            return _calling(item.call_id, name, arguments_of(item.arguments))
        case "custom_tool_call":
            return _calling(item.call_id, item.name, {"input": item.input})
        case "function_call_output" | "custom_tool_call_output":
            return Message("tool", _text(item.output), call_id=item.call_id)
        case _:
            raise bad(f"input items of type {item.type!r} are not served")


def _spoken(item: Item) -> Message:
    text = _text(item.content)
    if item.role in {"system", "developer"}:
        return Message("system", text)
    if item.role == "user":
        return Message("user", text)
    if item.role == "assistant":
        return Message("assistant", text)
    raise bad(f"wanted role system, developer, user or assistant; found {item.role!r}")


def _calling(call_id: str, name: str, arguments: Json) -> Message:
    return Message("assistant", calls=(ToolCall(call_id, name, arguments),))


def _text(content: str | Sequence[Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if any(part.type in {"input_image", "input_file", "image"} for part in content):
        raise no_images()
    return join_texts([part.text for part in content])


def _tools(tools: Sequence[WireTool]) -> Iterator[tuple[Tool, tuple[str, str] | None]]:
    """Each tool as the policy sees it, with (namespace, name) where it has one."""
    for tool in tools:
        description = tool.description or ""
        if tool.type == "function":
            yield Tool(tool.name, description, tool.parameters or {}), None
        elif tool.type == "custom":
            yield Tool(tool.name, description, FREE_TEXT), None
        elif tool.type == "namespace":
            for inner, _ in _tools([msgspec.convert(member, WireTool) for member in tool.tools]):
                name = f"{tool.name}.{inner.name}"
                yield Tool(name, inner.description, inner.parameters), (tool.name, inner.name)


def _items(asked: Asked, answer: Answer) -> Iterator[dict[str, Json]]:
    """Output items, each with an id of its own."""
    message, call_id = answer.message, answer.call_id
    if message.thinking:
        summary: Json = [{"type": "summary_text", "text": message.thinking}]
        yield {"id": f"rs_{call_id}", "type": "reasoning", "summary": summary}
    if message.text:
        part: Json = {"type": "output_text", "text": message.text, "annotations": []}
        yield {
            "id": f"msg_{call_id}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
    for call in message.calls:
        yield _call_item(asked, call)


def _call_item(asked: Asked, call: ToolCall) -> dict[str, Json]:
    if call.name in asked.custom_tools:
        arguments = call.arguments
        text = arguments.get("input") if isinstance(arguments, dict) else None
        return {
            "id": f"ctc_{call.call_id}",
            "type": "custom_tool_call",
            "status": "completed",
            "call_id": call.call_id,
            "name": call.name,
            "input": text if isinstance(text, str) else arguments_text(arguments),
        }
    namespace, name = asked.namespaces.get(call.name, (None, call.name))
    item: dict[str, Json] = {
        "id": f"fc_{call.call_id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.call_id,
        "name": name,
        "arguments": arguments_text(call.arguments),
    }
    return item if namespace is None else {**item, "namespace": namespace}


def _item_events(item: dict[str, Json], index: int) -> Iterator[tuple[str, dict[str, Json]]]:
    where: dict[str, Json] = {"item_id": item["id"], "output_index": index}
    kind = str(item["type"])
    yield "response.output_item.added", {"output_index": index, "item": _begun(item)}
    if kind == "message":
        yield from _text_events(item, {**where, "content_index": 0})
    elif kind == "function_call":
        arguments = item["arguments"]
        yield "response.function_call_arguments.delta", {**where, "delta": arguments}
        done = {**where, "arguments": arguments, "name": item["name"]}
        yield "response.function_call_arguments.done", done
    elif kind == "custom_tool_call":
        yield "response.custom_tool_call_input.delta", {**where, "delta": item["input"]}
        yield "response.custom_tool_call_input.done", {**where, "input": item["input"]}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _text_events(
    item: dict[str, Json], where: dict[str, Json]
) -> Iterator[tuple[str, dict[str, Json]]]:
    content = item["content"]
    assert isinstance(content, list)
    part = content[0]
    assert isinstance(part, dict)
    yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
    yield "response.output_text.delta", {**where, "delta": part["text"], "logprobs": []}
    yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**where, "part": part}


def _begun(item: dict[str, Json]) -> dict[str, Json]:
    """The item before its contents."""
    empty: dict[str, Json] = {"content": [], "summary": [], "arguments": "", "input": ""}
    begun = {key: empty.get(key, value) for key, value in item.items()}
    return {**begun, "status": "in_progress"} if "status" in item else begun


def _response(asked: Asked, call_id: str, answer: Answer | None) -> dict[str, Json]:
    cut = answer is not None and answer.finish is FinishReason.LENGTH
    status = "in_progress" if answer is None else "incomplete" if cut else "completed"
    return {
        "id": f"resp_{call_id}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": asked.model,
        "output": [] if answer is None else list(_items(asked, answer)),
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None if answer is None else _usage(answer),
    }


def _usage(answer: Answer) -> dict[str, Json]:
    return {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.prompt_tokens + answer.output_tokens,
    }


def _event(name: str, number: int, fields: dict[str, Json]) -> bytes:
    return sse({"type": name, "sequence_number": number, **fields}, name)
