"""What holds for every family, on a small tokenizer of its own."""

import json

import pytest
from hypothesis import given, settings

from opengyre.proxy.families.base import Family, encode_conversation, render_conversation
from opengyre.proxy.messages import Conversation, Json, Message
from tests.proxy.families_for_tests import BASH, SMALL, UNTYPED, answers, conversations

TOOLS = (BASH, UNTYPED)


@pytest.fixture(params=sorted(SMALL))
def family(request: pytest.FixtureRequest) -> Family:
    return SMALL[request.param]


def same(value: Json) -> str:
    """Tells 1, 1.0 and True apart."""
    return json.dumps(value)


@pytest.mark.parametrize("name", sorted(SMALL))
@settings(max_examples=40, deadline=None)
@given(conversation=conversations())
def test_chunk_by_chunk_is_the_whole(name: str, conversation: Conversation) -> None:
    family = SMALL[name]
    encoded = encode_conversation(family, conversation)
    text = render_conversation(family, conversation)
    assert family.decode(encoded.ids) == text
    bodies = [m.text for m in conversation.messages if m.role == "assistant" and not m.thinking]
    if all(not text[:1].isspace() for text in bodies):
        assert encoded.ids == family.encode(text)


@pytest.mark.parametrize("name", sorted(SMALL))
@settings(max_examples=100, deadline=None)
@given(answer=answers())
def test_an_answer_that_is_written_reads_as_itself(name: str, answer: Message) -> None:
    family = SMALL[name]
    ids = family.encode(family.body((answer,), TOOLS))
    for ending in ([], family.stop_ids[:1], family.stop_ids[-1:]):
        reply = family.parse([*ids, *ending], TOOLS)
        assert [(call.name, same(call.arguments)) for call in reply.calls] == [
            (call.name, same(call.arguments)) for call in answer.calls
        ]
        assert reply.text.strip() == answer.text.strip()
        assert reply.thinking in {answer.thinking, ""}
        assert reply.faithful
        assert not reply.malformed_calls
