"""Canonical messages: what a harness says, whatever the dialect it says it in.

Invariant: two requests that mean the same conversation give equal keys. A string equals a list of
one text part, empty text parts do not count, cache marks and billing lines are gone before we get
here, and arguments are compared as JSON values (key order, white space and 1.0 against 1 do not
count). Keys are for matching only: what is rendered is the message as it came.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
MessageRole = Literal["system", "user", "assistant", "tool"]
DEEPEST = 100
"""Levels of lists and objects in a value: more than any schema has, and far from where Python's stack
ends. A policy that repeats itself writes thousands of brackets."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the harness offers; parameters is its JSON schema."""

    name: str
    description: str
    parameters: dict[str, Json]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function call of the policy. Arguments are a JSON object, or text for free-form tools."""

    call_id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Message:
    """One message. thinking and calls only from the assistant, call_id only on tool results."""

    role: MessageRole
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


Turn = tuple[Message, ...]
"""Messages that are rendered as one chunk: a run of tool results, or any other single message."""


class Past(Protocol):
    """Turns of a conversation that an earlier request held in the same bytes: known, not read."""

    @property
    def keys(self) -> Sequence[tuple[bytes, str]]:
        """Of each turn in order: turn_digest and thinking."""
        ...

    @property
    def last_user_text(self) -> str:
        """Of the last user message among them; empty without one."""
        ...

    @property
    def last_call_ids(self) -> Sequence[str]:
        """Of the last message among them that has tool calls."""
        ...

    def whole(self) -> "Conversation":
        """The conversation with everything read, and no past."""
        ...


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a prompt is rendered from. The head (system and tools) comes first."""

    system: str
    tools: tuple[Tool, ...]
    messages: tuple[Message, ...]
    past: Past | None = None
    """What comes before messages, which then start with the assistant."""

    def turns(self) -> list[Turn]:
        """Those of messages."""
        return group_turns(self.messages)

    @property
    def answered(self) -> bool:
        """Whether the policy said anything in it."""
        return self.past is not None or any(m.role == "assistant" for m in self.messages)

    def last_user_text(self) -> str:
        """What the user said last; empty if nothing."""
        for message in reversed(self.messages):
            if message.role == "user":
                return message.text
        return self.past.last_user_text if self.past else ""

    def call_ids(self) -> Iterator[str]:
        """Ids of tool calls, the newest message's first; of a past, those of its last ones."""
        for message in reversed(self.messages):
            yield from (call.call_id for call in message.calls)
        if self.past:
            yield from self.past.last_call_ids


def group_turns(messages: Sequence[Message]) -> list[Turn]:
    """Merge each run of tool results; everything else stands alone.

    Results are put in the order of their calls: harnesses send them as they come in, and some
    templates show no ids to tell them apart.
    """
    turns: list[Turn] = []
    for message in messages:
        if message.role == "tool" and turns and turns[-1][-1].role == "tool":
            turns[-1] = (*turns[-1], message)
        else:
            turns.append((message,))
    for index, turn in enumerate(turns):
        if len(turn) > 1 and index:
            turns[index] = _in_call_order(turn, turns[index - 1][-1].calls)
    return turns


def _in_call_order(results: Turn, calls: Sequence[ToolCall]) -> Turn:
    order = {call.call_id: place for place, call in enumerate(calls)}
    return tuple(sorted(results, key=lambda result: order.get(result.call_id, len(order))))


def too_deep(value: Json) -> bool:
    """Whether it is nested deeper than DEEPEST."""
    level = [value]
    for _ in range(DEEPEST + 1):
        inner = [_inside(item) for item in level if isinstance(item, (dict, list))]
        if not inner:
            return False
        level = [item for items in inner for item in items]
    return True


def _inside(value: "dict[str, Json] | list[Json]") -> Iterable[Json]:
    return value.values() if isinstance(value, dict) else value


def mended(value: Json) -> Json:
    """The value with halves of surrogate pairs, which are no text, as U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [mended(item) for item in value]
    if isinstance(value, dict):
        return {str(mended(key)): mended(item) for key, item in value.items()}
    return value


def canonical(value: Json) -> Json:
    """The same JSON value with whole floats as integers, so that 1.0 equals 1."""
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def canonical_json(value: Json) -> str:
    """One string for all ways to write a JSON value."""
    return json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))


def turn_key(turn: Turn) -> str:
    """What a turn is matched by. Thinking is left out: not every harness echoes it."""
    return json.dumps(
        [
            [
                message.role,
                message.text,
                message.call_id,
                [
                    [call.call_id, call.name, canonical_json(call.arguments)]
                    for call in message.calls
                ],
            ]
            for message in turn
        ]
    )


def turn_digest(turn: Turn) -> bytes:
    """turn_key in sixteen bytes."""
    return text_digest(turn_key(turn))


def text_digest(text: str) -> bytes:
    """Sixteen bytes that stand for a text."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def head_key(system: str, tools: Sequence[Tool]) -> str:
    """What the head is matched by. Tool order counts, since it is rendered."""
    return json.dumps(
        [system, [[tool.name, tool.description, canonical_json(tool.parameters)] for tool in tools]]
    )
