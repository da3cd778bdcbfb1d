"""What is said in one dialect is what is said in the others, and what goes out comes back."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.core.reasons import FinishReason
from opengyre.proxy.answers import Answer, Job
from opengyre.proxy.dialects.anthropic import AnthropicDialect
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.dialects.chat import ChatDialect
from opengyre.proxy.dialects.responses import ResponsesDialect
from opengyre.proxy.messages import Conversation, Message, ToolCall, turn_key
from tests.proxy.dialect_requests import anthropic_body, chat_body, responses_body
from tests.proxy.strategies import arguments, conversations, texts

BASE = "http://nowhere"
FREE_TEXT: Any = {"type": "custom", "name": "patch", "description": "Patch it"}
SPAWN: Any = {"type": "function", "name": "spawn", "parameters": {}, "strict": False}
AGENTS: Any = {"type": "namespace", "name": "agents", "description": "d", "tools": [SPAWN]}


@given(conversations())
@settings(max_examples=100)
def test_a_conversation_means_the_same_in_all_three_dialects(conversation: Conversation) -> None:
    for dialect, body in (
        (AnthropicDialect(), anthropic_body),
        (ChatDialect(), chat_body),
        (ResponsesDialect(), responses_body),
    ):
        assert dialect.parse(body(conversation)).conversation == conversation


@st.composite
def answers(draw: st.DrawFn, *, custom: bool, namespaces: bool) -> Answer:
    kinds: list[st.SearchStrategy[ToolCall]] = [
        st.builds(ToolCall, st.just(""), st.just("Bash"), arguments)
    ]
    if custom:
        patches = texts.map(lambda text: {"input": text})
        kinds.append(st.builds(ToolCall, st.just(""), st.just("patch"), patches))
    if namespaces:
        kinds.append(st.builds(ToolCall, st.just(""), st.just("agents.spawn"), arguments))
    drawn = draw(st.lists(st.one_of(kinds), max_size=3))
    calls = tuple(
        ToolCall(f"id_{number}", call.name, call.arguments) for number, call in enumerate(drawn)
    )
    message = Message("assistant", draw(texts), draw(texts), calls)
    return Answer("call-1", message, FinishReason.STOP, 7, 5, 2)


class Wire:
    """Plays a server that answers all requests with the same bytes."""

    def __init__(self) -> None:
        self.content = b""
        self.kind = ""
        transport = httpx2.MockTransport(self._respond)
        self.anthropic = anthropic.Anthropic(
            base_url=BASE, api_key="k", http_client=httpx2.Client(transport=transport)
        )
        self.openai = openai.OpenAI(
            base_url=BASE, api_key="k", http_client=httpx2.Client(transport=transport)
        )

    def _respond(self, _request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": self.kind}, content=self.content)

    def load(self, dialect: Dialect, body: dict[str, Any], answer: Answer, *, stream: bool) -> None:
        asked = dialect.parse(body)
        if stream:
            job = Job(answer.call_id, answer.prompt_tokens, b"")
            parts = [dialect.opening(asked, job), dialect.ping(), *dialect.events(asked, answer)]
            self.content, self.kind = b"".join(parts), "text/event-stream"
        else:
            told = dialect.whole(asked, answer)
            self.content, self.kind = json.dumps(told).encode(), "application/json"


WIRE = Wire()
ASK: Any = [{"role": "user", "content": "Hi"}]


def heard_by_anthropic(answer: Answer, *, stream: bool, **more: Any) -> Message:
    tools: Any = [{"name": "Bash", "input_schema": {}}]
    body: Any = {"model": "m", "max_tokens": 9, "messages": ASK, "tools": tools, **more}
    WIRE.load(AnthropicDialect(), body, answer, stream=stream)
    if stream:
        with WIRE.anthropic.messages.stream(**body) as running:
            reply: Any = running.get_final_message()
    else:
        reply = WIRE.anthropic.messages.create(**body)
    assert reply.usage.output_tokens == answer.output_tokens
    assert reply.stop_reason == ("tool_use" if answer.message.calls else "end_turn")
    said = {"role": "assistant", "content": [block.model_dump() for block in reply.content]}
    body["messages"] = [*ASK, said, *ASK]
    return AnthropicDialect().parse(body).conversation.messages[1]


def heard_by_chat(answer: Answer, *, stream: bool) -> Message:
    custom: Any = {"type": "custom", "custom": {"name": "patch"}}
    body: Any = {"model": "m", "messages": ASK, "tools": [custom]}
    WIRE.load(ChatDialect(), body, answer, stream=stream)
    if stream:
        with WIRE.openai.chat.completions.stream(**{**body, "tools": []}) as running:
            reply: Any = running.get_final_completion()
    else:
        reply = WIRE.openai.chat.completions.create(**body)
        assert reply.usage.completion_tokens == answer.output_tokens
    finish = "tool_calls" if answer.message.calls else "stop"
    assert reply.choices[0].finish_reason == finish
    body["messages"] = [*ASK, reply.choices[0].message.model_dump(), *ASK]
    return ChatDialect().parse(body).conversation.messages[1]


def heard_by_responses(answer: Answer, *, stream: bool) -> Message:
    body: Any = {"model": "m", "input": ASK, "tools": [FREE_TEXT, AGENTS]}
    WIRE.load(ResponsesDialect(), body, answer, stream=stream)
    if stream:
        with WIRE.openai.responses.stream(**body) as running:
            reply: Any = running.get_final_response()
    else:
        reply = WIRE.openai.responses.create(**body)
    assert reply.status == "completed"
    assert reply.usage.output_tokens == answer.output_tokens
    assert reply.usage.output_tokens_details.reasoning_tokens == answer.thinking_tokens
    body["input"] = [*ASK, *(item.model_dump() for item in reply.output), *ASK]
    return ResponsesDialect().parse(body).conversation.messages[1]


def prove_same(heard: Message, answer: Answer) -> None:
    assert turn_key((heard,)) == turn_key((answer.message,))
    assert heard.thinking == answer.message.thinking


@pytest.mark.parametrize("stream", [True, False])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_answer_comes_back_through_anthropics_client(data: st.DataObject, stream: bool) -> None:
    answer = data.draw(answers(custom=False, namespaces=False))
    prove_same(heard_by_anthropic(answer, stream=stream), answer)
    hidden = {"type": "adaptive", "display": "omitted"}
    prove_same(heard_by_anthropic(answer, stream=stream, thinking=hidden), answer)


@pytest.mark.parametrize(
    ("heard", "namespaces"), [(heard_by_chat, False), (heard_by_responses, True)]
)
@pytest.mark.parametrize("stream", [True, False])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_an_answer_comes_back_through_openais_client(
    data: st.DataObject, heard: Callable[..., Message], namespaces: bool, stream: bool
) -> None:
    # The client's helper for chat streams knows no custom tools.
    custom = namespaces or not stream
    answer = data.draw(answers(custom=custom, namespaces=namespaces))
    prove_same(heard(answer, stream=stream), answer)


@given(answers(custom=False, namespaces=False))
@settings(max_examples=25)
def test_who_forbids_calls_sees_no_tools_and_hears_calls_as_text(answer: Answer) -> None:
    bodies: list[tuple[Dialect, dict[str, Any]]] = [
        (AnthropicDialect(), {"max_tokens": 1, "messages": ASK, "tool_choice": {"type": "none"}}),
        (ChatDialect(), {"messages": ASK, "tool_choice": "none"}),
        (ResponsesDialect(), {"input": ASK, "tool_choice": "none"}),
    ]
    for dialect, body in bodies:
        tools: Any = anthropic_tools() if dialect.name == "anthropic" else openai_tools(dialect)
        asked = dialect.parse({"model": "m", "tools": tools, **body})
        assert asked.conversation.tools == ()
        told = json.dumps(dialect.whole(asked, answer))
        assert all(mark not in told for mark in ('"tool_use"', '"function"', '"function_call"'))
        assert all(call.name in told for call in answer.message.calls)


def anthropic_tools() -> Any:
    return [{"name": "Read", "input_schema": {}}]


def openai_tools(dialect: Dialect) -> Any:
    if dialect.name == "chat":
        return [{"type": "function", "function": {"name": "Read"}}]
    return [{"type": "custom", "name": "Read"}]
