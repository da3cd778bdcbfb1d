"""The trie of contexts: recorded tokens are reused word for word, forks get their true reason."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.core.reasons import ForkReason
from opengyre.proxy.dialects.anthropic import AnthropicDialect
from opengyre.proxy.families.base import encode_answer, encode_turn
from opengyre.proxy.history import History, Plan
from opengyre.proxy.messages import Conversation, Json, Message, Tool, ToolCall, group_turns
from tests.proxy import strategies
from tests.proxy.conftest import FAMILY, tool_call

STOP = FAMILY.stop_ids[0]
BASH = Tool("Bash", "", {})
ASK = Message("user", "Fix it.")


class Scene:
    """An execution's history, and everything that was sampled in it."""

    def __init__(self) -> None:
        self.history = History(FAMILY)
        self.full: dict[str, list[int]] = {}
        self.count = 0

    def plan(self, *messages: Message, system: str = "Work.", summary: bool = False) -> Plan:
        plan = self.history.plan(Conversation(system, (BASH,), messages), summary=summary)
        before = self.full[plan.parent_id][: plan.reused] if plan.parent_id else []
        assert plan.prompt_ids == before + plan.suffix_ids
        return plan

    def answer(self, plan: Plan, said: str | list[int]) -> Message:
        """Record an answer to it; returns the message that the harness will hold."""
        self.count += 1
        call_id = f"c{self.count}"
        ids = [*FAMILY.encode(said), STOP] if isinstance(said, str) else said
        self.history.begin(plan)
        prompt = self.history.keep(plan, call_id, ids)
        reply = FAMILY.parse(ids)
        calls = tuple(
            ToolCall(f"{call_id}-{index}", call.name, dict(call.arguments))
            for index, call in enumerate(reply.calls)
        )
        message = Message("assistant", reply.text, reply.thinking, calls)
        stopped = bool(ids) and ids[-1] in FAMILY.stop_ids
        self.history.keep_reply(prompt, call_id, message, stopped=stopped, faithful=reply.faithful)
        self.history.end(plan)
        self.full[call_id] = [*plan.prompt_ids, *ids]
        return message


def result(message: Message, text: str = "out", index: int = 0) -> Message:
    return Message("tool", text, call_id=message.calls[index].call_id)


def test_a_conversation_that_goes_on_is_no_fork() -> None:
    scene = Scene()
    first = scene.plan(ASK)
    reply = scene.answer(first, tool_call("ls"))
    plan = scene.plan(ASK, reply, result(reply))
    assert (first.fork, plan.fork, plan.parent_id) == (None, None, "c1")
    assert plan.reused == len(scene.full["c1"])


def test_an_echo_without_thinking_still_finds_its_tokens() -> None:
    scene = Scene()
    reply = scene.answer(scene.plan(ASK), f"<think>\nhm\n</think>\n\n{tool_call('ls')}")
    assert reply.thinking == "hm"
    plan = scene.plan(ASK, replace(reply, thinking=""), result(reply))
    assert (plan.fork, plan.reused) == (None, len(scene.full["c1"]))
    edited = scene.plan(ASK, replace(reply, thinking="other"), result(reply))
    assert edited.fork is ForkReason.HISTORY_EDITED


def test_a_sub_agent_is_a_new_conversation_and_main_goes_on_beside_it() -> None:
    scene = Scene()
    reply = scene.answer(scene.plan(ASK), tool_call("ls"))
    other = scene.plan(Message("user", "Search."), system="You search.")
    assert (other.fork, other.parent_id, other.reused) == (ForkReason.NEW_CONVERSATION, None, 0)
    found = scene.answer(other, tool_call("rg x"))
    assert scene.plan(ASK, reply, result(reply)).fork is None
    go_on = scene.plan(Message("user", "Search."), found, result(found), system="You search.")
    assert (go_on.fork, go_on.parent_id) == (None, "c2")


def test_a_fresh_start_shares_the_head() -> None:
    scene = Scene()
    scene.answer(scene.plan(ASK), "Done.")
    plan = scene.plan(Message("user", "Something else."))
    assert (plan.fork, plan.parent_id) == (ForkReason.NEW_CONVERSATION, "c1")
    assert plan.reused == len(FAMILY.encode(FAMILY.head("Work.", [BASH])))


def test_the_same_request_again_is_a_sibling() -> None:
    scene = Scene()
    first = scene.plan(ASK)
    scene.answer(first, "One.")
    again = scene.plan(ASK)
    assert again.fork is ForkReason.SIBLING
    assert again.prompt_ids == first.prompt_ids


def test_a_parallel_turn_is_a_sibling() -> None:
    scene = Scene()
    reply = scene.answer(scene.plan(ASK), "One.")
    plan = scene.plan(ASK, reply, Message("user", "a"))
    scene.history.begin(plan)
    assert scene.plan(ASK, reply, Message("user", "b")).fork is ForkReason.SIBLING
    scene.history.end(plan)
    assert scene.plan(ASK, reply, Message("user", "b")).fork is None


def test_a_failed_call_leaves_no_mark() -> None:
    scene = Scene()
    plan = scene.plan(ASK)
    scene.history.begin(plan)
    scene.history.end(plan)
    assert scene.plan(ASK).fork is None


def test_a_dropped_reply_is_an_edited_history() -> None:
    scene = Scene()
    scene.answer(scene.plan(ASK), "No tool call.")
    plan = scene.plan(ASK, Message("user", "Call a tool."))
    assert plan.fork is ForkReason.HISTORY_EDITED
    assert plan.reused == len(scene.full["c1"]) - len(
        [*FAMILY.encode(FAMILY.generation_prompt), *FAMILY.encode("No tool call."), STOP]
    )


def test_a_compaction_and_what_follows_it() -> None:
    scene = Scene()
    one = scene.answer(scene.plan(ASK), tool_call("ls"))
    two = scene.answer(scene.plan(ASK, one, result(one)), tool_call("pwd"))
    asks = Message("user", "CRITICAL: Respond with TEXT ONLY")
    summary = scene.plan(ASK, one, result(one), asks, summary=True)
    assert summary.fork is ForkReason.COMPACTION
    scene.answer(summary, "A summary.")
    opening = Message("user", "This session is being continued from a previous conversation. …")
    after = scene.plan(opening, two, result(two))
    assert after.fork is ForkReason.COMPACTION
    assert FAMILY.decode(after.prompt_ids).count("pwd") == 1


def test_a_call_that_was_given_words_nobody_said_is_context_and_no_answer() -> None:
    """As Qwen Code's after a compaction; and where a part and its continuation became one."""
    scene = Scene()
    one = scene.answer(scene.plan(ASK), tool_call("ls"))
    fabricated = replace(one, text="Got it. Thanks for the additional context!")
    opening = Message(
        "user", "All is well.\n\nResume the prior task using the summary above. Go on."
    )
    after = scene.plan(opening, fabricated, result(one))
    assert after.fork is ForkReason.COMPACTION
    assert "additional context!\n<tool_call>" in FAMILY.decode(after.prompt_ids)
    merged = scene.plan(ASK, fabricated, result(one))
    assert merged.fork is ForkReason.HISTORY_EDITED
    assert FAMILY.decode(merged.suffix_ids).count("<tool_call>") == 1


def test_an_empty_answer_counts_only_if_it_was_sampled() -> None:
    """OpenCode leaves one where a stream was cut, before the answer that it got then."""
    scene = Scene()
    one = scene.answer(scene.plan(ASK), tool_call("ls"))
    plan = scene.plan(ASK, Message("assistant"), one, result(one))
    assert (plan.fork, plan.parent_id, plan.reused) == (None, "c1", len(scene.full["c1"]))
    empty = scene.answer(plan, "")
    after = scene.plan(ASK, one, result(one), empty, Message("user", "Well?"))
    assert (after.fork, after.parent_id) == (None, "c2")


def test_a_sub_agent_that_shares_its_opening_with_main_is_a_conversation_of_its_own() -> None:
    scene = Scene()
    place = Message("user", "You work in /app.")
    scene.answer(scene.plan(place, ASK), tool_call("ls"))
    plan = scene.history.plan(
        Conversation("Work.", (BASH,), (place, Message("user", "A part."))), fresh=True
    )
    assert (plan.fork, plan.parent_id) == (ForkReason.NEW_CONVERSATION, "c1")


def test_a_summary_is_recognised_by_its_own_text() -> None:
    scene = Scene()
    scene.answer(scene.plan(ASK), "One.")
    text = "The file main.py was repaired, the tests still have to be run."
    scene.answer(scene.plan(ASK, Message("user", "Sum up."), summary=True), text)
    scene.history.keep_summary(text)
    assert scene.plan(Message("user", f"So far: {text}")).fork is ForkReason.COMPACTION


def test_a_carried_over_answer_keeps_its_sampled_tokens() -> None:
    scene = Scene()
    said = '<tool_call>{"arguments":{"command":"ls"}, "name":"Bash"}</tool_call>'
    reply = scene.answer(scene.plan(ASK), said)
    plan = scene.plan(Message("user", "Go on."), reply, result(reply))
    assert said in FAMILY.decode(plan.suffix_ids)


def test_an_answer_that_cannot_be_written_again_starts_a_branch() -> None:
    scene = Scene()
    reply = scene.answer(scene.plan(ASK), f"{tool_call('ls')} and then some")
    first = scene.plan(ASK, reply, result(reply))
    assert first.fork is ForkReason.RENDER_MISMATCH
    two = scene.answer(first, tool_call("pwd"))
    assert scene.plan(ASK, reply, result(reply), two, result(two)).fork is None


def test_a_cut_answer_is_closed_before_the_next_turn() -> None:
    scene = Scene()
    reply = scene.answer(scene.plan(ASK), FAMILY.encode("One and"))
    plan = scene.plan(ASK, reply, Message("user", "Go on."))
    assert (plan.fork, plan.reused) == (None, len(scene.full["c1"]))
    assert FAMILY.decode(plan.suffix_ids).startswith("<|im_end|>\n<|im_start|>user\nGo on.")


def test_results_stand_in_the_order_of_their_calls() -> None:
    calls = (ToolCall("a", "Bash", {}), ToolCall("b", "Bash", {}))
    late, early = Message("tool", "A", call_id="a"), Message("tool", "B", call_id="b")
    assert group_turns([Message("assistant", calls=calls), early, late])[1] == (late, early)


def noisy(messages: list[Message], draw: st.DataObject) -> dict[str, Json]:
    """The conversation as a Claude-like harness might write it, this time."""
    wire: list[Json] = []
    for message in messages:
        marked = draw.draw(st.booleans())
        mark: dict[str, Json] = {"cache_control": {"type": "ephemeral"}} if marked else {}
        if message.role == "assistant":
            blocks: list[Json] = []
            if message.thinking:
                blocks.append({"type": "thinking", "thinking": message.thinking, "signature": "x"})
            if message.text or draw.draw(st.booleans()):
                blocks.append({"type": "text", "text": message.text})
            for call in message.calls:
                assert isinstance(call.arguments, dict)
                keys = draw.draw(st.permutations(list(call.arguments)))
                value: Json = {key: _renumbered(call.arguments[key]) for key in keys}
                use: Json = {"type": "tool_use", "id": call.call_id, "name": call.name}
                assert isinstance(use, dict)
                blocks.append({**use, "input": value, **mark})
            wire.append({"role": "assistant", "content": blocks})
            continue
        part: Json = {"type": "text", "text": message.text, **mark}
        if message.role == "tool":
            block: Json = {"type": "tool_result", "tool_use_id": message.call_id}
            assert isinstance(block, dict)
            block["content"] = message.text if draw.draw(st.booleans()) else [part]
            wire.append({"role": "user", "content": [block]})
        else:
            plain = draw.draw(st.booleans())
            wire.append({"role": "user", "content": message.text if plain else [part]})
    billing: Json = {
        "type": "text",
        "text": f"x-anthropic-billing-header: {draw.draw(st.integers())}",
    }
    return {
        "model": "m",
        "messages": wire,
        "system": [billing, {"type": "text", "text": "Work."}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
    }


def _renumbered(value: Json) -> Json:
    return int(value) if isinstance(value, float) and value.is_integer() else value


answers = st.one_of(
    strategies.texts,
    strategies.texts.map(lambda text: f"<think>\n{text}x\n</think>\n\nSo.\n{tool_call('ls')}"),
    st.just(tool_call("a") + "\n" + tool_call("b")),
    st.just('<tool_call>{"arguments":{"timeout":1.0,"command":"x"},"name":"Bash"}</tool_call>'),
    st.lists(st.integers(0, 300), min_size=1, max_size=6),
)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_the_noise_the_prompt_is_the_rendering_with_sampled_tokens_in_it(
    data: st.DataObject,
) -> None:
    scene = Scene()
    dialect = AnthropicDialect()
    held = [Message("user", data.draw(strategies.texts))]
    expected = FAMILY.encode(FAMILY.head("Work.", [Tool("Bash", "", {"type": "object"})]))
    expected += encode_turn(FAMILY, (held[0],))
    on_template = True
    for turn in range(data.draw(st.integers(1, 4))):
        asked = dialect.parse(noisy(held, data))
        plan = scene.history.plan(asked.conversation)
        assert plan.fork is (None if on_template else ForkReason.RENDER_MISMATCH)
        header = FAMILY.encode(FAMILY.generation_prompt)
        assert plan.prompt_ids == expected + header
        said = data.draw(answers)
        ids = [*FAMILY.encode(said), STOP] if isinstance(said, str) else said
        reply = scene.answer(plan, ids)
        if not FAMILY.parse(ids).faithful:
            return
        on_template = ids[-1] == STOP or ids[-1] not in FAMILY.stop_ids
        expected += encode_answer(FAMILY, ids, None)
        results = [Message("tool", f"r{turn}", call_id=call.call_id) for call in reply.calls]
        held += [reply, *results]
        if results:
            expected += encode_turn(FAMILY, tuple(results))
        else:
            held.append(Message("user", data.draw(strategies.texts)))
            expected += encode_turn(FAMILY, (held[-1],))
