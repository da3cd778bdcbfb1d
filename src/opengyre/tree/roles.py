"""Which part of an execution a call plays, read off the marks that its harness leaves.

Invariant: one table per harness, tried from the top, and the first rule that holds decides. A call
that no rule knows is recorded as unknown and not trained.
"""

from collections.abc import Callable

import msgspec
from msgspec import Struct

from opengyre.core.reasons import Role

PRIORITY = (Role.MAIN, Role.MAIN_SUMMARY, Role.SUB_AGENT, Role.SUB_AGENT_SUMMARY)
"""The trainable roles, in the order in which selection serves them."""

CLAUDE_SUMMARY = "CRITICAL: Respond with TEXT ONLY"
"""Opens the text block that Claude Code appends when it asks for a compaction."""

CODEX_SUMMARY = "You are performing a CONTEXT CHECKPOINT COMPACTION"
"""Opens the last user message when Codex asks for a compaction."""

CODEX_HOUSEKEEPING = frozenset({"memory", "memory_consolidation", "prewarm"})
"""Values of request_kind and subagent_kind for what Codex does outside the task."""

QWEN_MAIN = "You are Qwen Code"
"""Opens the system text of Qwen Code's own conversation; sub-agents have others."""

QWEN_SUMMARY = "You are the component that summarizes a conversation"
"""Opens the last user message of a compaction that keeps its conversation's head, or else the system
text of one that does not."""

QWEN_HOUSEKEEPING = (
    "You are now acting as the managed memory extraction subagent",
    "You are performing a managed memory dream",
    "You are saving one explicit durable memory",
    "You are selecting memories",
    "You are reviewing this conversation to extract reusable skills",
)
"""Open the system texts of what Qwen Code does outside the task."""

OPENCODE_SUMMARY = "You are a context summarization agent"
"""Opens the system text of OpenCode's compactions."""

OPENCODE_TITLE = "You are a title generator"
"""Opens the system text of the call that names a session."""


class CallMarks(Struct, frozen=True, kw_only=True):
    """What a request tells about its sender. Made by proxy; read by tree."""

    headers: dict[str, str] = {}
    """Names in lower case."""
    system: str = ""
    last_user_text: str = ""
    """Text blocks of the last user message, joined by newlines; no tool results."""
    tool_names: list[str] = []
    server_tools: list[str] = []
    """Names of tools that the API's own server would run."""
    output_format: str | None = None
    """"json_schema" where a structured answer is asked for."""
    earlier: Role | None = None
    """Of the newest call that shares a tool call or a session with this one."""


class CodexTurn(Struct, frozen=True):
    """The part of Codex's turn metadata that tells calls apart."""

    request_kind: str | None = None
    subagent_kind: str | None = None


Table = Callable[[CallMarks], tuple[Role, str]]


def trains(role: Role) -> bool:
    """Whether tokens that a call of this role sampled may be trained."""
    return role in PRIORITY


def classify(harness: str, marks: CallMarks) -> tuple[Role, str]:
    """The call's role, and the mark that decided it."""
    table = TABLES.get(harness)
    if table is None:
        return Role.UNKNOWN, f"no table for {harness}; known: {', '.join(sorted(TABLES))}"
    return table(marks)


def _claude_code(marks: CallMarks) -> tuple[Role, str]:
    if marks.server_tools and set(marks.tool_names) <= set(marks.server_tools):
        return Role.AUXILIARY, f"server tool only: {', '.join(marks.server_tools)}"
    if marks.output_format == "json_schema" and not marks.tool_names:
        return Role.AUXILIARY, "no tools and a json_schema answer: a title"
    summary = _has_line(marks.last_user_text, CLAUDE_SUMMARY)
    if "x-claude-code-agent-id" in marks.headers:
        why = "x-claude-code-agent-id"
        if summary:
            return Role.SUB_AGENT_SUMMARY, f"{why}, {CLAUDE_SUMMARY!r}"
        return Role.SUB_AGENT, why
    if summary:
        return Role.MAIN_SUMMARY, repr(CLAUDE_SUMMARY)
    return Role.MAIN, "no x-claude-code-agent-id"


def _codex(marks: CallMarks) -> tuple[Role, str]:
    turn = _codex_turn(marks.headers)
    kind = turn.request_kind
    subagent = turn.subagent_kind or marks.headers.get("x-openai-subagent")
    if {kind, subagent} & CODEX_HOUSEKEEPING:
        return Role.AUXILIARY, f"request_kind {kind}, subagent_kind {subagent}"
    if kind is None and _has_line(marks.last_user_text, CODEX_SUMMARY):
        kind = "compaction"
    below = subagent is not None or "x-codex-parent-thread-id" in marks.headers
    why = f"request_kind {kind}, " + (f"subagent_kind {subagent}" if below else "no subagent_kind")
    roles = {
        ("turn", False): Role.MAIN,
        ("compaction", False): Role.MAIN_SUMMARY,
        ("turn", True): Role.SUB_AGENT,
        ("compaction", True): Role.SUB_AGENT_SUMMARY,
    }
    return roles.get((kind or "", below), Role.UNKNOWN), why


def _codex_turn(headers: dict[str, str]) -> CodexTurn:
    try:
        return msgspec.json.decode(headers.get("x-codex-turn-metadata", "{}"), type=CodexTurn)
    except msgspec.MsgspecError:
        return CodexTurn()


def _qwen_code(marks: CallMarks) -> tuple[Role, str]:
    opening = marks.system[: len(max(QWEN_HOUSEKEEPING, key=len))]
    if marks.system.startswith(QWEN_HOUSEKEEPING):
        return Role.AUXILIARY, f"system {opening!r}"
    if marks.system.startswith(QWEN_SUMMARY):
        return _summary_of(marks.earlier, "the conversation that it holds", QWEN_SUMMARY)
    below = not marks.system.startswith(QWEN_MAIN)
    if _has_line(marks.last_user_text, QWEN_SUMMARY):
        return _summary_of(
            Role.SUB_AGENT if below else Role.MAIN, "its own system text", QWEN_SUMMARY
        )
    if not below:
        return Role.MAIN, f"system {QWEN_MAIN!r}"
    if not marks.tool_names:
        return Role.AUXILIARY, f"no tools, and another system text: {opening!r}"
    return Role.SUB_AGENT, f"tools, and another system text: {opening!r}"


def _opencode(marks: CallMarks) -> tuple[Role, str]:
    if marks.system.startswith(OPENCODE_TITLE):
        return Role.AUXILIARY, f"system {OPENCODE_TITLE!r}"
    below = "x-parent-session-id" in marks.headers
    if marks.system.startswith(OPENCODE_SUMMARY):
        earlier = Role.SUB_AGENT if below else marks.earlier
        return _summary_of(earlier, "its session", OPENCODE_SUMMARY)
    if below:
        return Role.SUB_AGENT, "x-parent-session-id"
    return Role.MAIN, "no x-parent-session-id"


def _summary_of(earlier: Role | None, who: str, mark: str) -> tuple[Role, str]:
    """A compaction has the rank of what it sums up; of nothing known, main's."""
    if earlier in {Role.SUB_AGENT, Role.SUB_AGENT_SUMMARY}:
        return Role.SUB_AGENT_SUMMARY, f"{mark!r}, {who} is a sub-agent's"
    return Role.MAIN_SUMMARY, f"{mark!r}, {who} is main's"


def _everything_main(_marks: CallMarks) -> tuple[Role, str]:
    return Role.MAIN, "this harness has one conversation"


def _has_line(text: str, opening: str) -> bool:
    return any(line.startswith(opening) for line in text.splitlines())


TABLES: dict[str, Table] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "qwen-code": _qwen_code,
    "opencode": _opencode,
    "mini-swe-agent": _everything_main,
    "command": _everything_main,
}
"""By harness name."""
