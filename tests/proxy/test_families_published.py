"""Families against the chat templates and tokenizers that their models were published with."""

import contextlib
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from opengyre.core.errors import UserError
from opengyre.proxy.families.base import (
    Family,
    encode_conversation,
    encode_turn,
    render_conversation,
)
from opengyre.proxy.families.make import detect_family, make_family
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall
from tests.proxy import strategies
from tests.proxy.families_for_tests import BASH, SMALL, UNTYPED, answers
from tests.proxy.published import (
    TEMPLATES,
    TRL,
    deepseek_tokenizer,
    members,
    qwen3_tokenizer,
    template,
    template_text,
)
from tests.proxy.test_families import TOOLS, same, seams_hold

pytestmark = [pytest.mark.harnesses, pytest.mark.timeout(300)]
FAMILIES = sorted(TEMPLATES)


def real(name: str) -> Family:
    """On the published tokenizer, where a registry has it."""
    if name == "glm-4.5":
        return SMALL[name]
    return make_family(name, deepseek_tokenizer() if "deepseek" in name else qwen3_tokenizer())


plain: dict[str, st.SearchStrategy[Json]] = {
    "command": strategies.texts,
    "timeout": st.one_of(st.none(), st.integers()),
    "ratio": st.floats(0, 1e300),
    "flag": st.booleans(),
    "items": st.lists(strategies.json_values, max_size=2),
}
"""Values that templates write unmistakably."""


@st.composite
def conversations(draw: st.DrawFn, family: str) -> Conversation:
    """Such that the template says something of every part: it drops earlier reasoning, and adds
    some of its own to an answer that comes last."""
    middle = ["user"] if family in {"deepseek-v3.1", "qwen3.6"} else ["user", "system"]
    messages = [Message("user", draw(strategies.texts))]
    for turn in range(draw(st.integers(0, 3))):
        calls = tuple(
            ToolCall(f"{turn}-{number}", "Bash", draw(st.fixed_dictionaries({}, optional=plain)))
            for number in range(draw(st.integers(0, 2)))
        )
        messages.append(Message("assistant", draw(strategies.texts), calls=calls))
        messages += [Message("tool", draw(strategies.texts), call_id=c.call_id) for c in calls]
        if not calls or draw(st.booleans()):
            messages.append(Message(draw(st.sampled_from(middle)), draw(strategies.texts)))
    if family in {"qwen3", "glm-4.5"} and messages[-1].role == "user":
        call = ToolCall("last", "Bash", {"command": "ls"})
        messages.append(Message("assistant", "So.", draw(strategies.texts).strip(), (call,)))
        messages.append(Message("tool", "out", call_id="last"))
    shown: list[tuple[Tool, ...]] = [(), (BASH,)]
    if family == "deepseek-v3.1":
        shown = [()]
    elif family in {"qwen3-coder", "qwen3.6", "glm-4.5"} and any(m.calls for m in messages):
        shown = [(BASH,)]  # without a schema, "42" could be a number: it is quoted
    tools = draw(st.sampled_from(shown))
    return Conversation(draw(strategies.texts), tools, tuple(messages))


def as_template_input(conversation: Conversation) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    if conversation.system:
        messages.append({"role": "system", "content": conversation.system})
    for message in conversation.messages:
        shown: dict[str, Any] = {"role": message.role, "content": message.text}
        if message.calls:
            shown["tool_calls"] = [
                {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in message.calls
            ]
        if message.thinking:
            shown["reasoning_content"] = message.thinking
        messages.append(shown)
    tools = [
        {
            "type": "function",
            "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
        }
        for t in conversation.tools
    ]
    return {"messages": messages, "tools": tools or None}


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_the_rendering_is_the_published_templates(name: str, data: st.DataObject) -> None:
    family = SMALL[name]
    conversation = data.draw(conversations(name))
    given_to = as_template_input(conversation)
    if name == "qwen3-coder":
        given_to["tools"] = given_to["tools"] or []
    bos = "<｜begin▁of▁sentence｜>" if name == "deepseek-v3.1" else ""
    wanted = template(name).render(
        **given_to, bos_token=bos, add_generation_prompt=True, preserve_thinking=True
    )
    opening = family.opening(conversation.turns()[-1])
    assert render_conversation(family, conversation) + opening == wanted


@pytest.mark.parametrize("name", FAMILIES)
def test_the_published_template_tells_the_family(name: str, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(template_text(name))
    assert detect_family(tmp_path) == name


KNOWN = {
    "qwen3": "qwen3",
    "qwen3_instruct_2507": "qwen3",
    "qwen3_vl": "qwen3",
    "qwen2_5": "qwen2.5",
    "qwen3_5_think": "qwen3.6",
    "qwen3_6": "qwen3.6",
    "glm4moe": "glm-4.5",
}
"""Of the templates that TRL ships."""


def test_of_all_templates_that_a_library_ships_only_the_known_ones_are_told(
    tmp_path: Path,
) -> None:
    file = tmp_path / "chat_template.jinja"
    told = {}
    for name, text in members(TRL, "trl/chat_templates/").items():
        file.write_text(text)
        with contextlib.suppress(UserError):
            told[name.removesuffix(".jinja").removesuffix("_training")] = detect_family(tmp_path)
    assert told == KNOWN


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_with_the_published_tokenizer_chunks_are_the_whole(name: str, data: st.DataObject) -> None:
    family = real(name)
    conversation = data.draw(conversations(name))
    text = render_conversation(family, conversation)
    assume(unicodedata.is_normalized("NFC", text))
    encoded = encode_conversation(family, conversation)
    assert family.decode(encoded.ids) == text
    if seams_hold(family, conversation):
        assert encoded.ids == family.encode(text)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(answer=answers())
def test_with_the_published_tokenizer_calls_survive(name: str, answer: Message) -> None:
    family = real(name)
    text = family.body((answer,), TOOLS)
    assume(unicodedata.is_normalized("NFC", text))
    reply = family.parse([*family.encode(text), *family.stop_ids[:1]], (BASH, UNTYPED))
    assert [(call.name, same(call.arguments)) for call in reply.calls] == [
        (call.name, same(call.arguments)) for call in answer.calls
    ]
    assert reply.faithful


@pytest.mark.parametrize("name", FAMILIES)
def test_a_published_tokenizer_has_the_familys_tokens_whole(name: str) -> None:
    family = real(name)
    turn = (Message("user", "Hi"),)
    ids = encode_turn(family, turn) + family.encode(family.opening(turn))
    assert family.decode(ids) == family.render(turn) + family.opening(turn)
