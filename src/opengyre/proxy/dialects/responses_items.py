"""The items of OpenAI Responses: those that come in, and those that an answer is made of.

Invariant: the items that go out come back as one assistant message, whatever their number. Tools
inside a namespace are shown to the policy as namespace.name and go out again as both.
"""

from collections.abc import Iterator

from msgspec import Struct

from opengyre.core.reasons import FinishReason
from opengyre.proxy.answers import Answer, Asked
from opengyre.proxy.dialects.base import (
    Part,
    arguments_of,
    arguments_text,
    free_text,
    join_texts,
    no_part,
    seal,
    text_of,
    told,
    unseal,
)
from opengyre.proxy.messages import Json, Message, ToolCall
from opengyre.proxy.refusals import bad


class Item(Struct):
    """Any input item; which fields it has depends on its type."""

    type: str | None = "message"
    id: str | None = None
    role: str = ""
    content: str | list[Part] | None = None
    summary: list[Part] | None = None
    encrypted_content: str | None = None
    call_id: str = ""
    name: str = ""
    namespace: str | None = None
    arguments: str = ""
    input: str = ""
    output: str | list[Part] | None = None


def read_items(given: str | list[Item]) -> list[Message]:
    """Items of the assistant between two other items are one message, but for a part of an answer
    that was cut, which stands before the next answer."""
    if isinstance(given, str):
        return [Message("user", given)]
    messages: list[Message] = []
    answer = ""
    for index, item in enumerate(given):
        message = _message(item, f"input[{index}]")
        another = bool(answer) and _answer(item) not in {"", answer}
        answer = _answer(item) or answer if message.role == "assistant" else ""
        goes_on = message.role == "assistant" and messages and messages[-1].role == "assistant"
        if goes_on and not another:
            message = _merged(messages.pop(), message)
        messages.append(message)
    return messages


def _answer(item: Item) -> str:
    """Which answer of ours this reasoning or text is of, by its id; of calls it is not known."""
    kind, _, answer = (item.id or "").partition("_")
    return answer if kind in {"rs", "msg"} else ""


def _merged(one: Message, two: Message) -> Message:
    return Message(
        "assistant",
        join_texts([one.text, two.text]),
        join_texts([one.thinking, two.thinking]),
        one.calls + two.calls,
    )


def _message(item: Item, place: str) -> Message:
    match item.type:
        case "message" | None:
            return _spoken(item, place)
        case "reasoning":
            return Message("assistant", thinking=_thinking(item, place))
        case "function_call":
            return _calling(item, arguments_of(item.arguments))
        case "custom_tool_call":
            return _calling(item, {"input": item.input})
        case "function_call_output" | "custom_tool_call_output":
            return Message("tool", text_of(item.output, f"{place}.output"), call_id=item.call_id)
        case kind:
            raise no_part(kind, place)


def _spoken(item: Item, place: str) -> Message:
    text = text_of(item.content, f"{place}.content")
    if item.role in {"system", "developer"}:
        return Message("system", text)
    if item.role == "user":
        return Message("user", text)
    if item.role == "assistant":
        return Message("assistant", text)
    found = f"found {item.role!r}"
    raise bad(f"wanted system, developer, user or assistant; {found}", f"{place}.role")


def _thinking(item: Item, place: str) -> str:
    text = text_of(item.summary, f"{place}.summary") or text_of(item.content, f"{place}.content")
    return text or unseal(item.encrypted_content or "", f"{place}.encrypted_content")


def _calling(item: Item, arguments: Json) -> Message:
    name = f"{item.namespace}.{item.name}" if item.namespace else item.name
    return Message("assistant", calls=(ToolCall(item.call_id, name, arguments),))


def output_items(asked: Asked, answer: Answer) -> list[dict[str, Json]]:
    """What was answered, each item with an id of its own; a cut answer's last one says so."""
    items = list(_items(asked, told(asked, answer), answer.call_id))
    if items and answer.finish is FinishReason.LENGTH:
        items[-1]["status"] = "incomplete"
    return items


def _items(asked: Asked, message: Message, call_id: str) -> Iterator[dict[str, Json]]:
    if message.thinking:
        yield _reasoning(message.thinking, f"rs_{call_id}", sealed=asked.sealed_thinking)
    if message.text or not (message.thinking or message.calls):
        part: Json = {
            "type": "output_text",
            "text": message.text,
            "annotations": [],
            "logprobs": [],
        }
        yield {
            "id": f"msg_{call_id}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [part],
        }
    for call in message.calls:
        yield _call_item(asked, call)


def _reasoning(thinking: str, item_id: str, *, sealed: bool) -> dict[str, Json]:
    summary: Json = [{"type": "summary_text", "text": thinking}]
    item: dict[str, Json] = {"id": item_id, "type": "reasoning", "summary": summary}
    if sealed:
        item["encrypted_content"] = seal(thinking)
    return item


def _call_item(asked: Asked, call: ToolCall) -> dict[str, Json]:
    namespace, name = asked.namespaces.get(call.name, (None, call.name))
    item: dict[str, Json] = {"status": "completed", "call_id": call.call_id, "name": name}
    if namespace is not None:
        item["namespace"] = namespace
    if call.name in asked.custom_tools:
        spoken = free_text(call)
        return {"id": f"ctc_{call.call_id}", "type": "custom_tool_call", **item, "input": spoken}
    arguments = arguments_text(call.arguments)
    return {"id": f"fc_{call.call_id}", "type": "function_call", **item, "arguments": arguments}


def item_events(item: dict[str, Json], index: int) -> Iterator[tuple[str, dict[str, Json]]]:
    """(name, fields) of the events that tell one item."""
    where: dict[str, Json] = {"item_id": item["id"], "output_index": index}
    yield "response.output_item.added", {"output_index": index, "item": _begun(item)}
    match item["type"]:
        case "reasoning":
            yield from _summary_events(item, {**where, "summary_index": 0})
        case "message":
            yield from _text_events(item, {**where, "content_index": 0})
        case "function_call":
            arguments = item["arguments"]
            yield "response.function_call_arguments.delta", {**where, "delta": arguments}
            done = {**where, "arguments": arguments, "name": item["name"]}
            yield "response.function_call_arguments.done", done
        case _:
            yield "response.custom_tool_call_input.delta", {**where, "delta": item["input"]}
            yield "response.custom_tool_call_input.done", {**where, "input": item["input"]}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _only_part(parts: Json) -> dict[str, Json]:
    assert isinstance(parts, list)
    part = parts[0]
    assert isinstance(part, dict)
    return part


def _summary_events(
    item: dict[str, Json], where: dict[str, Json]
) -> Iterator[tuple[str, dict[str, Json]]]:
    part = _only_part(item["summary"])
    yield "response.reasoning_summary_part.added", {**where, "part": {**part, "text": ""}}
    yield "response.reasoning_summary_text.delta", {**where, "delta": part["text"]}
    yield "response.reasoning_summary_text.done", {**where, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**where, "part": part}


def _text_events(
    item: dict[str, Json], where: dict[str, Json]
) -> Iterator[tuple[str, dict[str, Json]]]:
    part = _only_part(item["content"])
    yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
    yield "response.output_text.delta", {**where, "delta": part["text"], "logprobs": []}
    yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
    yield "response.content_part.done", {**where, "part": part}


def _begun(item: dict[str, Json]) -> dict[str, Json]:
    """The item before its contents."""
    empty: dict[str, Json] = {"content": [], "summary": [], "arguments": "", "input": ""}
    begun = {key: empty.get(key, value) for key, value in item.items()}
    return {**begun, "status": "in_progress"} if "status" in item else begun
