"""What must not grow with a conversation: tokens encoded, bytes read, memory, slices of the loop."""

import asyncio
import itertools
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from opengyre.app.wall import WallClock
from opengyre.proxy.cuts import LINES, locate
from opengyre.proxy.dialects.anthropic import AnthropicDialect
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.dialects.chat import ChatDialect
from opengyre.proxy.dialects.responses import ResponsesDialect
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.history import History
from opengyre.proxy.messages import Conversation, Message, turn_digest
from opengyre.proxy.reading import Reader, Reading
from opengyre.proxy.refusals import Refusal
from opengyre.proxy.turns import OneByOne, Turns
from tests.proxy.conftest import FAMILY, tool_call
from tests.proxy.tokenizers_for_tests import small_tokenizer

WORDS = st.text(st.sampled_from('ab"\\{}[],: \néЖ\U0001f600'), max_size=6)
KINDS = st.sampled_from(["user", "answer", "calls", "result", "system", "nothing"])
SPEECH = st.lists(st.tuples(KINDS, WORDS), max_size=6)
DIALECTS: dict[str, Dialect] = {
    "anthropic": AnthropicDialect(),
    "chat": ChatDialect(),
    "responses": ResponsesDialect(),
}
Items = list[dict[str, Any]]
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}}


def chat_items(kind: str, word: str) -> Items:
    function = {"name": "Bash", "arguments": json.dumps({"command": word})}
    kinds: dict[str, Items] = {
        "user": [{"role": "user", "content": word}],
        "answer": [{"role": "assistant", "content": word}],
        "calls": [
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": word,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            }
        ],
        "result": [{"role": "tool", "content": word, "tool_call_id": "c1"}],
        "system": [{"role": "system", "content": word}],
        "nothing": [{"role": "user", "content": ""}],
    }
    return kinds[kind]


def anthropic_items(kind: str, word: str) -> Items:
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": word}}
    thinking = {"type": "thinking", "thinking": word, "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": word}
    kinds: dict[str, Items] = {
        "user": [{"role": "user", "content": [{"type": "text", "text": word}]}],
        "answer": [{"role": "assistant", "content": word}],
        "calls": [{"role": "assistant", "content": [thinking, call]}],
        "result": [{"role": "user", "content": [result]}],
        "system": [{"role": "system", "content": word}],
        "nothing": [{"role": "user", "content": []}],
    }
    return kinds[kind]


def responses_items(kind: str, word: str) -> Items:
    call = {"type": "function_call", "call_id": "c1", "name": "Bash", "arguments": f"[{len(word)}"}
    kinds: dict[str, Items] = {
        "user": [{"role": "user", "content": word}],
        "answer": [{"role": "assistant", "content": word}, call],
        "calls": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": word}]}, call],
        "result": [{"type": "function_call_output", "call_id": "c1", "output": word}],
        "system": [{"role": "developer", "content": word}],
        "nothing": [{"role": "user", "content": ""}],
    }
    return kinds[kind]


ITEMS = {"anthropic": anthropic_items, "chat": chat_items, "responses": responses_items}


def body(dialect: str, items: list[dict[str, Any]], *, spaced: bool = False) -> bytes:
    name = "input" if dialect == "responses" else "messages"
    tool: dict[str, Any] = {"name": "Bash", "description": "d"}
    tool |= {"input_schema": TOOL} if dialect == "anthropic" else {"parameters": TOOL}
    if dialect != "anthropic":
        tool = {"type": "function"} | ({"function": tool} if dialect == "chat" else tool)
    value = {"model": "m", "metadata": {name: items[:1]}, name: items, "tools": [tool]}
    separators = (" , ", " : ") if spaced else (",", ":")
    return json.dumps(value, separators=separators, ensure_ascii=len(items) % 2 == 0).encode()


def mirrored(value: Any, *, text: bool = False) -> Any:
    """The same item with its texts read backwards: other bytes, but as many."""
    if isinstance(value, dict):
        texts = {"text", "content", "command", "output"}
        return {key: mirrored(one, text=key in texts) for key, one in value.items()}
    if isinstance(value, list):
        return [mirrored(one) for one in value]
    return value[::-1] if text and isinstance(value, str) else value


def meaning(
    reading: Reading,
) -> tuple[Conversation, list[tuple[bytes, str]], str, list[str], bytes]:
    """All that anybody asks of a reading, whether its past was read or not."""
    conversation = reading.asked.conversation
    past = conversation.past
    keys = list(past.keys) if past else []
    keys += [(turn_digest(turn), turn[0].thinking) for turn in conversation.turns()]
    whole = past.whole() if past else conversation
    calls = [*conversation.call_ids()][:1]
    return whole, keys, conversation.last_user_text(), calls, reading.digest


def outcome(reader: Reader, dialect: str, raw: bytes) -> tuple[object, ...]:
    """The meaning, or what is refused."""
    try:
        return meaning(read(reader, dialect, raw))
    except Refusal as refusal:
        return str(refusal), refusal.kind


def read(reader: Reader, dialect: str, raw: bytes) -> Reading:
    return reader.read(DIALECTS[dialect], raw, {}, reader.lines.find(raw))


@settings(max_examples=40)
@given(
    dialect=st.sampled_from(sorted(DIALECTS)),
    growth=st.lists(SPEECH, min_size=1, max_size=5),
    cut=st.integers(0, 5),
    leading=st.integers(0, 2),
    spaced=st.booleans(),
)
def test_a_body_read_from_a_cut_on_means_what_it_means_read_whole(
    dialect: str, growth: list[list[tuple[str, str]]], cut: int, leading: int, *, spaced: bool
) -> None:
    """Grown, asked again, an item left out, or replaced by one that is as long."""
    reader = Reader()
    items: list[dict[str, Any]] = ITEMS[dialect]("system", "You mend.") * leading
    items += ITEMS[dialect]("user", "Mend it, all of it, today.")
    bodies = [body(dialect, items, spaced=spaced)]
    for speech in growth:
        items = items + [item for kind, word in speech for item in ITEMS[dialect](kind, word)]
        bodies.append(body(dialect, items, spaced=spaced))
    less = items[:cut] + items[cut + 1 :]
    other = [mirrored(one) if place == cut else one for place, one in enumerate(items)]
    grown = bodies[-1]
    bodies += [grown, body(dialect, less, spaced=spaced), grown]
    bodies += [body(dialect, other, spaced=spaced), grown]
    retries: dict[object, object] = {}
    for raw in bodies:
        found = outcome(reader, dialect, raw)
        assert found == outcome(Reader(), dialect, raw)
        if len(found) > 2:  # it was not refused: what has its digest is taken for a retry of it
            value = json.loads(raw)
            said = value.get("messages", value.get("input"))
            assert retries.setdefault(found[-1], said) == said


def talk(turns: int, *, mark: bool = False) -> list[dict[str, Any]]:
    """An Anthropic conversation; mark: the newest message bears what moves with it."""
    items = anthropic_items("user", "Mend it.")
    for number in range(turns):
        items += anthropic_items("calls", f"ls {number}") + anthropic_items("result", f"{number}")
    if mark:
        last = items[-1]["content"][-1]
        items[-1] = {"role": "user", "content": [{**last, "cache_control": {"type": "ephemeral"}}]}
    return items


@pytest.mark.parametrize("mark", [False, True])
def test_only_what_is_new_of_a_growing_body_is_read(*, mark: bool) -> None:
    reader = Reader()
    for turns in range(40):
        reading = read(reader, "anthropic", body("anthropic", talk(turns, mark=mark)))
        assert len(reading.asked.conversation.messages) <= (4 if mark else 2)
    assert len(reader.lines) <= (2 if mark else 1)


def test_a_reader_remembers_a_bounded_number_of_conversations() -> None:
    reader = Reader()
    for number in range(2 * LINES):
        items = anthropic_items("user", f"Mend file number {number}, and nothing else.")
        read(reader, "anthropic", body("anthropic", items))
    assert len(reader.lines) == LINES


def test_a_list_of_the_same_name_inside_something_else_is_not_the_conversation() -> None:
    inner = b'{"model":"m","a":{"messages":[1,2]},"messages":[1,2],"b":"\\"messages\\":[1,2]"}'
    assert locate(inner, "messages") == (inner.index(b"[1,2],"), [49, 51])
    assert locate(b'{"messages":[1],"messages":[2]}', "messages") == (27, [29])
    assert locate(b'{"messages":3}', "messages") is None
    assert locate(b'{"input":[]}', "messages") is None


@dataclass
class Counting:
    """A family that counts what it encodes."""

    encoded: list[int] = field(default_factory=list)

    def family(self) -> Qwen3Family:
        encoded = self.encoded

        class Family(Qwen3Family):
            def encode(self, text: str) -> list[int]:
                ids = super().encode(text)
                encoded.append(len(ids))
                return ids

        return Family(small_tokenizer())


class Line:
    """One execution that goes on and on, as the proxy sees it."""

    def __init__(self) -> None:
        self.counting = Counting()
        self.history = History(self.counting.family())
        self.reader = Reader()
        self.items = chat_items("user", "Mend it.")
        self.calls = 0

    def call(self, result: str) -> int:
        """One call and its tool's result. Returns the tokens that it encoded beyond its suffix."""
        self.counting.encoded.clear()
        raw = body("chat", self.items)
        reading = read(self.reader, "chat", raw)
        plan = self.history.plan(reading.asked.conversation)
        encoded = sum(self.counting.encoded)
        output = [*FAMILY.encode(tool_call("ls")), FAMILY.stop_ids[0]]
        self.calls += 1
        node = self.history.keep(plan, f"call-{self.calls}", output)
        parsed = FAMILY.parse(output).calls[0]
        call_id = f"toolu-{self.calls}"
        told = DIALECTS["chat"].parse(
            {"model": "m", "messages": [*self._answer(call_id, parsed.name)]}
        )
        message = told.conversation.messages[0]
        self.history.keep_reply(node, f"call-{self.calls}", message, stopped=True, faithful=True)
        self.items += self._answer(call_id, parsed.name)
        self.items.append({"role": "tool", "content": result, "tool_call_id": call_id})
        assert (plan.fork, plan.reused > 0) == (None, self.calls > 1)
        return encoded - len(plan.suffix_ids)

    def _answer(self, call_id: str, name: str) -> list[dict[str, Any]]:
        function = {"name": name, "arguments": json.dumps({"command": "ls"})}
        call = {"id": call_id, "type": "function", "function": function}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]


def test_a_call_encodes_its_suffix_and_nothing_that_grows() -> None:
    line = Line()
    extra = [line.call("the same few words") for _ in range(60)]
    assert len(set(extra[1:])) == 1


def test_a_thread_that_looks_ahead_leaves_nothing_to_encode_and_changes_nothing() -> None:
    counting = Counting()
    history, plain = History(counting.family()), History(FAMILY)
    conversation = Conversation("Work.", (), (Message("user", "Mend it. " * 50),))
    list(history.looking_ahead(conversation, None))
    counting.encoded.clear()
    ahead, now = history.plan(conversation), plain.plan(conversation)
    assert counting.encoded == []
    assert (ahead.prompt_ids, ahead.steps) == (now.prompt_ids, now.steps)
    list(history.looking_ahead(conversation, None))
    history.forget(conversation)
    history.plan(replace(conversation))
    assert counting.encoded


async def test_between_two_turns_everything_else_is_served() -> None:
    turns, log = Turns(WallClock()), list[str]()

    async def work(number: int) -> None:
        async with turns.one():
            log.append(f"work {number}")

    async def watch() -> None:
        while log.count("watch") + 5 > len(log):
            log.append("watch")
            await WallClock().sleep(0.0)

    await asyncio.gather(watch(), *(work(number) for number in range(5)))
    between = "".join("w" if entry == "watch" else "." for entry in log)
    assert ".." not in between
    assert [entry for entry in log if entry != "watch"] == [f"work {n}" for n in range(5)]


async def test_requests_that_come_at_once_are_taken_up_in_turns() -> None:
    taken = 0

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        nonlocal taken
        taken += 1

    async def receive() -> Event:
        raise AssertionError

    async def send(_event: Event) -> None:
        raise AssertionError

    door = OneByOne(app, Turns(WallClock()))
    waiting = asyncio.gather(*(door({}, receive, send) for _ in range(50)))
    seen = [0]
    while seen[-1] < 50:
        await WallClock().sleep(0.0)
        seen.append(taken)
    await waiting
    assert max(after - before for before, after in itertools.pairwise(seen)) == 1
