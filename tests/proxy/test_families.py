"""What holds for every family, on a small tokenizer of its own."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.config.run import FamilyName
from opengyre.core.errors import UserError
from opengyre.core.reasons import FinishReason, Role
from opengyre.core.records import Call, VersionSpan
from opengyre.proxy.families.base import (
    Family,
    encode_answer,
    encode_conversation,
    encode_turn,
    render_conversation,
)
from opengyre.proxy.families.make import AUTO, FAMILIES, detect_family, make_family
from opengyre.proxy.history import History, Plan
from opengyre.proxy.messages import Conversation, Json, Message, MessageRole, ToolCall, group_turns
from opengyre.tree.record import ExecutionTree
from opengyre.tree.select import select
from tests.proxy.conftest import fold
from tests.proxy.families_for_tests import BASH, SMALL, UNTYPED, answers, conversations
from tests.proxy.tokenizers_for_tests import GLM, small_tokenizer

TOOLS = (BASH, UNTYPED)


def same(value: Json) -> str:
    """Tells 1, 1.0 and True apart."""
    return json.dumps(value)


@pytest.mark.parametrize("name", sorted(SMALL))
@settings(max_examples=30, deadline=None)
@given(conversation=conversations())
def test_chunk_by_chunk_is_the_whole(name: str, conversation: Conversation) -> None:
    family = SMALL[name]
    encoded = encode_conversation(family, conversation)
    text = render_conversation(family, conversation)
    assert family.decode(encoded.ids) == text
    if seams_hold(family, conversation):
        assert encoded.ids == family.encode(text)


def seams_hold(family: Family, conversation: Conversation) -> bool:
    """No white space of an answer meets white space that its opening ends with.

    An answer is encoded apart from its opening, as it is sampled; there the two would merge.
    """
    answered = [(m,) for m in conversation.messages if m.role == "assistant"]
    meets = family.opening(None)[-1:].isspace()
    return not (meets and any(family.body(turn)[:1].isspace() for turn in answered))


@pytest.mark.parametrize("name", sorted(SMALL))
@settings(max_examples=60, deadline=None)
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


@pytest.mark.parametrize("name", sorted(SMALL))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_turn_by_turn_is_the_canonical_rendering_and_forks_have_reasons(
    name: str, data: st.DataObject
) -> None:
    scene = Scene(SMALL[name], data, echoes=data.draw(st.booleans()))
    for _turn in range(data.draw(st.integers(1, 4))):
        plan = scene.ask()
        assert plan.prompt_ids.tolist() == scene.canonical()
        assert (plan.fork is not None) is scene.parts
        scene.answer(plan, data.draw(sampled(scene.family)))
        scene.go_on()
    tree = ExecutionTree(scene.calls)
    chosen = select(tree, None, random.Random(0))
    chosen.check()
    assert chosen.ledger.owned == sum(len(call.output_ids) for call in scene.calls)
    for call in scene.calls:
        assert fold(scene.calls, call.call_id) == scene.prompts[call.call_id] + call.output_ids


@st.composite
def sampled(draw: st.DrawFn, family: Family) -> list[int]:
    """An answer as a policy could sample it: canonical, odd, or noise; stopped somehow or not."""
    written = family.encode(family.body((draw(answers()),), TOOLS))
    noise = draw(st.lists(st.integers(0, 300), min_size=1, max_size=6))
    ids = draw(st.sampled_from([written, written[: len(written) // 2], written + noise, noise]))
    stops = [family.stop_ids[:1], [draw(st.sampled_from(family.stop_ids))], list[int]()]
    return [*ids, *draw(st.sampled_from(stops))] or noise


class Scene:
    """One conversation of a harness, and what its prompts must be made of."""

    def __init__(self, family: Family, data: st.DataObject, *, echoes: bool) -> None:
        self.family, self.data, self.echoes = family, data, echoes
        self.history = History(family)
        self.held: list[Message] = [Message("user", "Go.")]
        self.own: dict[int, list[int]] = {}
        """By place in held: the tokens of an answer that the harness holds as it was told."""
        self.calls: list[Call] = []
        self.prompts: dict[str, list[int]] = {}
        self.parts = False
        """The next prompt cannot go on from the last answer."""

    def ask(self) -> Plan:
        return self.history.plan(Conversation("Work.", TOOLS, tuple(self.held)))

    def canonical(self) -> list[int]:
        """All of it, from the family alone: what was sampled as it was, the rest as rendered."""
        family, before, place = self.family, None, 0
        ids = family.encode(family.head("Work.", TOOLS))
        for turn in group_turns(self.held):
            own = self.own.get(place)
            place += len(turn)
            if own is None:
                ids += encode_turn(family, turn, before, TOOLS)
            else:
                ids += encode_answer(family, own, before)
            before = turn
        return ids + family.encode(family.opening(before))

    def answer(self, plan: Plan, ids: list[int]) -> None:
        """The policy says this, and the harness holds what it is told."""
        call_id = f"c{len(self.calls)}"
        self.calls.append(recorded(call_id, len(self.calls), plan, ids))
        self.prompts[call_id] = plan.prompt_ids.tolist()
        self.history.begin(plan)
        prompt = self.history.keep(plan, call_id, ids)
        reply = self.family.parse(ids, TOOLS)
        made = tuple(
            ToolCall(f"{call_id}-{number}", call.name, dict(call.arguments))
            for number, call in enumerate(reply.calls)
        )
        told = Message("assistant", reply.text, reply.thinking, made)
        stopped = ids[-1] in self.family.stop_ids
        self.history.keep_reply(prompt, call_id, told, stopped=stopped, faithful=reply.faithful)
        self.history.end(plan)
        self.parts = not reply.faithful
        if reply.faithful:
            self.own[len(self.held)] = ids
        self.held.append(told if self.echoes else replace(told, thinking=""))

    def go_on(self) -> None:
        """The harness goes on: results in any order, words, or an answer rewritten."""
        place = len(self.held) - 1
        ids, told = self.calls[-1].output_ids, self.held[place]
        if self.data.draw(st.integers(0, 5)) == 0:
            self.held[place] = Message("assistant", f"rewritten {place}", calls=told.calls)
            self.own.pop(place, None)
            self.parts = True
        order = self.data.draw(st.permutations(told.calls))
        self.held += [Message("tool", f"r {call.call_id}", call_id=call.call_id) for call in order]
        if not told.calls or self.data.draw(st.booleans()):
            roles: list[MessageRole] = ["user", "system"]
            self.held.append(Message(self.data.draw(st.sampled_from(roles)), f"{place}"))
        after = group_turns(self.held[: place + 2])[-1]
        follows = self.family.encode(self.family.turn_end + self.family.render(after))[0]
        self.parts |= ids[-1] in self.family.stop_ids and ids[-1] != follows


def recorded(call_id: str, index: int, plan: Plan, ids: list[int]) -> Call:
    return Call(
        call_id=call_id,
        execution_id="e",
        index=index,
        dialect="chat",
        parent_id=plan.parent_id,
        reused=plan.reused,
        suffix_ids=plan.suffix_ids,
        output_ids=ids,
        output_logprobs=[-1.0] * len(ids),
        versions=[VersionSpan(0, 0, len(ids))],
        finish=FinishReason.STOP,
        role=Role.MAIN,
        role_why="it is",
        fork=plan.fork,
        started_at=0.0,
        ended_at=1.0,
    )


THOUGHT = {"qwen3.6": "</think>\n\n"}
"""Where the prompt opens the reasoning, an answer has to close it."""
BROKEN = {
    "qwen3": '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}\n</tool_call>',
    "qwen2.5": '<tool_call>\n{"name": "Bash", "arguments": "ls"}\n</tool_call>',
    "qwen3-coder": "<tool_call>\n<function=Bash>\n<parameter=command>\nls\n</function>\n</tool_call>",
    "qwen3.6": "<tool_call>\n<parameter=command>\nls\n</parameter>\n</tool_call>",
    "glm-4.5": "<tool_call>Bash\n<arg_key>command</arg_key>\n</tool_call>",
    "deepseek-v3.1": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>Bash<｜tool▁sep｜>ls<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_call_that_cannot_be_read_is_text_is_counted_and_its_tokens_are_trained(
    name: str,
) -> None:
    family = SMALL[name]
    reply = family.parse(
        family.encode(f"{THOUGHT.get(name, '')}Go {BROKEN[name]}") + family.stop_ids[:1], TOOLS
    )
    assert (reply.text, reply.calls, reply.malformed_calls) == (f"Go {BROKEN[name]}", (), 1)


def test_a_name_that_nobody_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UserError, match=re.escape(", ".join(FAMILIES))):
        make_family("llama", small_tokenizer())
    with pytest.raises(UserError, match="signature"):
        make_family("glm-4.5", small_tokenizer(GLM), "signature")
    with pytest.raises(UserError, match="one special token"):
        make_family("glm-4.5", small_tokenizer())


def test_the_configuration_names_every_family() -> None:
    assert get_args(FamilyName) == (AUTO, *FAMILIES)


@pytest.mark.parametrize(
    ("model_type", "template", "name"),
    [
        ("qwen3", None, "qwen3"),
        ("qwen2", None, "qwen2.5"),
        ("glm4_moe", None, "glm-4.5"),
        ("qwen3_moe", "<|im_start|> <tool_call> <function= <parameter=", "qwen3-coder"),
        ("qwen3_moe", "<|im_start|> <think> <tool_call> <function-name>", "qwen3"),
        (
            "qwen3_5",
            "<think> <parameter= No user query found in messages. enable_thinking is false",
            "qwen3.6",
        ),
        ("deepseek_v3", "<｜Assistant｜></think> <｜tool▁calls▁begin｜>", "deepseek-v3.1"),
    ],
)
def test_a_folder_tells_its_family(
    tmp_path: Path, model_type: str, template: str | None, name: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    saved = {} if template is None else {"chat_template": template}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(saved))
    assert detect_family(tmp_path) == name


@pytest.mark.parametrize(
    ("model_type", "template"),
    [
        ("qwen3_moe", None),
        ("deepseek_v3", None),
        ("llama", None),
        ("qwen3", "<|start_header_id|>"),
        ("deepseek_v3", "<｜Assistant｜> </think> <｜tool▁calls▁begin｜> ```json"),
        ("qwen3_5", "<|im_start|> <think> <tool_call> <function= <parameter="),
    ],
)
def test_a_folder_that_could_be_anything_is_refused(
    tmp_path: Path, model_type: str, template: str | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    if template is not None:
        (tmp_path / "chat_template.jinja").write_text(template)
    with pytest.raises(UserError, match="name the family that it was trained with"):
        detect_family(tmp_path)
