"""Qwen3's template and parser in particular, on a small real tokeniser."""

import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer, models

from opengyre.core.errors import UserError
from opengyre.proxy.families.base import encode_conversation, render_conversation
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.messages import Conversation, Message, Tool, ToolCall, turn_key
from tests.proxy import strategies
from tests.proxy.tokenizers_for_tests import small_tokenizer

BASH = Tool("Bash", "Run it", {"type": "object", "properties": {"command": {}, "timeout": {}}})


SMALL = Qwen3Family(small_tokenizer())
TALK = Conversation(
    "Be brief.",
    (BASH,),
    (
        Message("user", "Fix it."),
        Message("assistant", "Looking.", "Hm\n2", (ToolCall("a", "Bash", {"command": "ls"}),) * 2),
        Message("tool", "main.py\n"),
        Message("tool", ""),
        Message("assistant", "Done."),
    ),
)


def test_chunks_encode_as_the_whole_text() -> None:
    encoded = encode_conversation(SMALL, TALK)
    assert encoded.ids == SMALL.encode(render_conversation(SMALL, TALK))
    assert SMALL.decode(encoded.ids) == render_conversation(SMALL, TALK)


@settings(max_examples=60)
@given(strategies.conversations())
def test_any_conversation_decodes_to_its_rendering(conversation: Conversation) -> None:
    encoded = encode_conversation(SMALL, conversation)
    assert SMALL.decode(encoded.ids) == render_conversation(SMALL, conversation)
    for start, end in encoded.sampled:
        assert encoded.ids[end - 1] == SMALL.stop_ids[0]
        header = SMALL.encode(SMALL.generation_prompt)
        assert encoded.ids[start - len(header) : start] == header
    if all(not m.text[:1].isspace() for m in conversation.messages if m.role == "assistant"):
        assert encoded.ids == SMALL.encode(render_conversation(SMALL, conversation))


@settings(max_examples=60)
@given(strategies.conversations())
def test_a_rendered_answer_parses_to_itself(conversation: Conversation) -> None:
    encoded = encode_conversation(SMALL, conversation)
    answers = [m for m in conversation.messages if m.role == "assistant"]
    for (start, end), answer in zip(encoded.sampled, answers, strict=True):
        reply = SMALL.parse(encoded.ids[start:end])
        assert reply.faithful
        assert [(c.name, c.arguments) for c in reply.calls] == [
            (c.name, c.arguments) for c in answer.calls
        ]
        assert reply.thinking.strip() == answer.thinking.strip()
        assert reply.text.strip() == answer.text.strip()


def test_the_published_template_is_followed() -> None:
    assert render_conversation(SMALL, TALK).endswith(
        "<|im_start|>user\nFix it.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\nHm\n2\n</think>\n\nLooking.\n"
        '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nmain.py\n\n</tool_response>\n"
        "<tool_response>\n\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nDone.<|im_end|>\n"
    )


def test_a_signature_head_is_one_line_a_tool() -> None:
    tiny = Qwen3Family(small_tokenizer(), "signature")
    assert tiny.head("Work.", [BASH]) == (
        "<|im_start|>system\nWork.\n\nBash(command, timeout)<|im_end|>\n"
    )


@pytest.mark.parametrize(
    "bad",
    [
        '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}\n</tool_call>',
        '<tool_call>\n{"name": "Bash", "arguments": "ls"}\n</tool_call>',
        '<tool_call>\n{"name": "Bash", "arguments": {"a": 1, "a": 2}}\n</tool_call>',
        '<tool_call>\n{"name": "Bash", "arguments": {"a": NaN}}\n</tool_call>',
        '<tool_call>\n{"name": "Bash"',
    ],
)
def test_a_malformed_call_stays_text_and_is_counted(bad: str) -> None:
    reply = SMALL.parse(SMALL.encode(f"Go {bad}<|im_end|>"))
    assert (reply.text, reply.calls, reply.malformed_calls) == (f"Go {bad}", (), 1)


@pytest.mark.parametrize(
    "odd",
    [
        "<think>\nnever closed",
        'a<tool_call>\n{"name": "B", "arguments": {}}\n</tool_call> and more',
        "one<|im_start|>user\ntwo",
    ],
)
def test_what_cannot_be_written_again_is_not_faithful(odd: str) -> None:
    assert not SMALL.parse(SMALL.encode(odd)).faithful


def test_keys_see_through_serialisation() -> None:
    one = Message("assistant", calls=(ToolCall("a", "B", {"x": 1.0, "y": [1e3]}),))
    two = Message("assistant", calls=(ToolCall("a", "B", {"y": [1000], "x": 1}),))
    assert turn_key((one,)) == turn_key((two,))
    assert turn_key((one,)) != turn_key((Message("assistant", "x", calls=one.calls),))


def test_a_foreign_tokeniser_is_refused() -> None:
    with pytest.raises(UserError, match="im_start"):
        Qwen3Family(Tokenizer(models.BPE()))
