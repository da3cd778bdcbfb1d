"""Each harness's marks lead to the roles that were observed on the wire."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.reasons import Role
from opengyre.tree.roles import PRIORITY, TABLES, CallMarks, classify, claude_code, trains

SUMMARY = "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools."
FETCHED = """
Web page content:
---
Cats.
---

What are they?

Provide a concise response based only on the content above. In your response: …
"""
AGENT = {"x-claude-code-session-id": "s", "x-claude-code-agent-id": "a"}
TOOLS = ["Bash", "Read", "Edit", "Write"]


@pytest.mark.parametrize(
    ("marks", "role"),
    [
        (CallMarks(tool_names=TOOLS, last_user_text="Fix the test."), Role.MAIN),
        (CallMarks(last_user_text="No tools at all."), Role.MAIN),
        (CallMarks(tool_names=TOOLS, output_format="json_schema"), Role.MAIN),
        (CallMarks(tool_names=TOOLS, server_tools=["web_search"]), Role.MAIN),
        (CallMarks(tool_names=TOOLS, last_user_text=SUMMARY), Role.MAIN_SUMMARY),
        (CallMarks(tool_names=TOOLS, last_user_text=f"Go on.\n{SUMMARY}"), Role.MAIN_SUMMARY),
        (CallMarks(tool_names=TOOLS, last_user_text=f"What is {SUMMARY!r}?"), Role.MAIN),
        (CallMarks(headers=AGENT, tool_names=TOOLS), Role.SUB_AGENT),
        (CallMarks(headers=AGENT, last_user_text=SUMMARY), Role.SUB_AGENT_SUMMARY),
        (CallMarks(server_tools=["web_search"]), Role.AUXILIARY),
        (CallMarks(tool_names=["web_search"], server_tools=["web_search"]), Role.AUXILIARY),
        (CallMarks(headers=AGENT, server_tools=["web_search"]), Role.AUXILIARY),
        (CallMarks(output_format="json_schema"), Role.AUXILIARY),
        (CallMarks(last_user_text=FETCHED), Role.AUXILIARY),
        (CallMarks(headers=AGENT, last_user_text=FETCHED), Role.AUXILIARY),
        (CallMarks(tool_names=TOOLS, last_user_text=FETCHED), Role.MAIN),
    ],
)
def test_claude_code(marks: CallMarks, role: Role) -> None:
    found, why = classify("claude-code", marks)
    assert found is role
    assert why


OWN_LINE = "You are Claude Code, Anthropic's official CLI for Claude."
HEAD = f"{OWN_LINE}\nYou help with software."


@pytest.mark.parametrize("opening", claude_code.BESIDE)
def test_a_helper_of_claude_code_with_a_conversations_history_is_auxiliary(opening: str) -> None:
    asked = f"Fix it.\n{opening} … and so on.\nReply with it only."
    for headers in ({}, AGENT):
        marks = CallMarks(headers=headers, system=HEAD, tool_names=TOOLS, last_user_text=asked)
        found, why = classify("claude-code", marks)
        assert found is Role.AUXILIARY
        assert repr(opening) in why
        quoted = CallMarks(headers=headers, tool_names=TOOLS, last_user_text=f"Explain {asked!r}.")
        assert trains(classify("claude-code", quoted)[0])


@pytest.mark.parametrize("opening", [*claude_code.APART, claude_code.PREFIX, claude_code.VERIFIER])
def test_a_helper_of_claude_code_with_a_system_text_of_its_own_is_auxiliary(opening: str) -> None:
    system = f"{OWN_LINE}\n{opening} and more"
    assert classify("claude-code", CallMarks(system=system))[0] is Role.AUXILIARY
    with_tools = classify("claude-code", CallMarks(system=system, tool_names=TOOLS))[0]
    assert trains(with_tools) is (opening != claude_code.VERIFIER)


@pytest.mark.parametrize("asked", [*claude_code.ALONE, *claude_code.PROBES])
def test_a_helper_of_claude_code_without_a_system_text_is_auxiliary(asked: str) -> None:
    for system in ("", OWN_LINE, "You are a Claude agent, built on Anthropic's Claude Agent SDK."):
        marks = CallMarks(system=system, last_user_text=asked)
        assert classify("claude-code", marks)[0] is Role.AUXILIARY
    for marks in (
        CallMarks(system=HEAD, last_user_text=asked),
        CallMarks(system=OWN_LINE, tool_names=TOOLS, last_user_text=asked),
    ):
        assert classify("claude-code", marks)[0] is Role.MAIN


def codex(text: str = "", extra: dict[str, str] | None = None, **turn: str | int) -> CallMarks:
    headers = {"session-id": "s", "x-codex-turn-metadata": json.dumps(turn)}
    return CallMarks(headers=headers | (extra or {}), last_user_text=text)


COMPACT = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary."
PARENT = {"x-codex-parent-thread-id": "t"}


@pytest.mark.parametrize(
    ("marks", "role"),
    [
        (codex(request_kind="turn", window_number=0), Role.MAIN),
        (codex(request_kind="compaction", text=COMPACT), Role.MAIN_SUMMARY),
        (codex(request_kind="turn", text=COMPACT), Role.MAIN),
        (codex(request_kind="turn", subagent_kind="thread_spawn"), Role.SUB_AGENT),
        (codex(request_kind="turn", extra=PARENT), Role.SUB_AGENT),
        (codex(request_kind="turn", extra={"x-openai-subagent": "review"}), Role.SUB_AGENT),
        (codex(request_kind="compaction", subagent_kind="thread_spawn"), Role.SUB_AGENT_SUMMARY),
        (codex(request_kind="memory"), Role.AUXILIARY),
        (codex(request_kind="prewarm"), Role.AUXILIARY),
        (codex(request_kind="turn", subagent_kind="memory_consolidation"), Role.AUXILIARY),
        (codex(request_kind="something new"), Role.UNKNOWN),
        (CallMarks(), Role.UNKNOWN),
        (CallMarks(headers={"x-codex-turn-metadata": "{not json"}), Role.UNKNOWN),
        (CallMarks(headers={"x-codex-turn-metadata": '{"request_kind": 3}'}), Role.UNKNOWN),
        (CallMarks(last_user_text=COMPACT), Role.MAIN_SUMMARY),
    ],
)
def test_codex(marks: CallMarks, role: Role) -> None:
    found, why = classify("codex", marks)
    assert found is role
    assert why


QWEN = "You are Qwen Code, a non-interactive CLI agent"
SUM_UP = "You are the component that summarizes a conversation when its context window is full."
PART = "You are a general-purpose subagent working for a parent agent."


@pytest.mark.parametrize(
    ("marks", "role"),
    [
        (CallMarks(system=QWEN, tool_names=TOOLS), Role.MAIN),
        (CallMarks(system=QWEN), Role.MAIN),
        (CallMarks(system=QWEN, tool_names=TOOLS, last_user_text=SUM_UP), Role.MAIN_SUMMARY),
        (CallMarks(system=PART, tool_names=TOOLS), Role.SUB_AGENT),
        (CallMarks(system=PART, tool_names=TOOLS, last_user_text=SUM_UP), Role.SUB_AGENT_SUMMARY),
        (CallMarks(system=SUM_UP), Role.MAIN_SUMMARY),
        (CallMarks(system=SUM_UP, earlier=Role.MAIN), Role.MAIN_SUMMARY),
        (CallMarks(system=SUM_UP, earlier=Role.SUB_AGENT), Role.SUB_AGENT_SUMMARY),
        (CallMarks(system=SUM_UP, earlier=Role.SUB_AGENT_SUMMARY), Role.SUB_AGENT_SUMMARY),
        (
            CallMarks(
                system="You are now acting as the managed memory extraction subagent for an AI",
                tool_names=TOOLS,
            ),
            Role.AUXILIARY,
        ),
        (CallMarks(system="You are an independent Goal Verifier."), Role.AUXILIARY),
    ],
)
def test_qwen_code(marks: CallMarks, role: Role) -> None:
    assert classify("qwen-code", marks)[0] is role


BELOW = {"x-session-id": "b", "x-parent-session-id": "a"}
FLATTEN = "You are a context summarization agent. You are given a conversation."


@pytest.mark.parametrize(
    ("marks", "role"),
    [
        (CallMarks(system="You are opencode", tool_names=TOOLS), Role.MAIN),
        (CallMarks(system="You are opencode", tool_names=TOOLS, headers=BELOW), Role.SUB_AGENT),
        (CallMarks(system=FLATTEN), Role.MAIN_SUMMARY),
        (CallMarks(system=FLATTEN, earlier=Role.SUB_AGENT), Role.SUB_AGENT_SUMMARY),
        (CallMarks(system=FLATTEN, headers=BELOW), Role.SUB_AGENT_SUMMARY),
        (CallMarks(system="You are a title generator. You output titles."), Role.AUXILIARY),
    ],
)
def test_opencode(marks: CallMarks, role: Role) -> None:
    assert classify("opencode", marks)[0] is role


@pytest.mark.parametrize("harness", ["mini-swe-agent", "command"])
def test_harnesses_with_one_conversation_are_main(harness: str) -> None:
    assert classify(harness, CallMarks(headers=AGENT, last_user_text=SUMMARY))[0] is Role.MAIN


def test_a_harness_without_a_table_is_unknown_and_the_choices_are_named() -> None:
    role, why = classify("claude", CallMarks())
    assert role is Role.UNKNOWN
    assert "claude-code" in why


def test_auxiliary_and_unknown_never_train() -> None:
    assert set(Role) - set(PRIORITY) == {Role.AUXILIARY, Role.UNKNOWN}
    assert [trains(role) for role in PRIORITY] == [True] * 4


@pytest.mark.parametrize("harness", sorted(TABLES))
def test_the_reason_names_the_table_and_its_version(harness: str) -> None:
    _, why = classify(harness, CallMarks(system="Anything.", tool_names=TOOLS))
    assert why.startswith(f"{harness} table {TABLES[harness].version}: ")


@pytest.mark.parametrize("harness", ["codex", "no such program"])
def test_unknown_is_main_only_where_that_is_asked_for(harness: str) -> None:
    role, why = classify(harness, CallMarks())
    assert role is Role.UNKNOWN
    taken, told = classify(harness, CallMarks(), unknown_as_main=True)
    assert taken is Role.MAIN
    assert told.startswith(why)
    assert "train_unknown" in told


@given(
    st.sampled_from(sorted(TABLES)),
    st.builds(
        CallMarks,
        headers=st.dictionaries(
            st.sampled_from(
                ["x-claude-code-agent-id", "x-codex-parent-thread-id", "x-parent-session-id"]
            ),
            st.just("a"),
        ),
        system=st.sampled_from(["", "You are Qwen Code", "You are a title generator", "Other."]),
        last_user_text=st.sampled_from(["", SUMMARY, COMPACT, "Go on."]),
        tool_names=st.lists(st.sampled_from(TOOLS), unique=True),
        server_tools=st.sampled_from([[], ["web_search"]]),
        output_format=st.sampled_from([None, "json_schema"]),
        earlier=st.sampled_from([None, *Role]),
    ),
)
def test_taking_unknown_for_main_changes_nothing_else(harness: str, marks: CallMarks) -> None:
    found, why = classify(harness, marks)
    assert why
    if found is not Role.UNKNOWN:
        assert classify(harness, marks, unknown_as_main=True) == (found, why)
