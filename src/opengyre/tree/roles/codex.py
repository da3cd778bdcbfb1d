"""Codex 0.1xx: a header with metadata says what each call is for."""

import msgspec
from msgspec import Struct

from opengyre.core.reasons import Role
from opengyre.tree.roles.base import CallMarks, Sign, Table, rule, user_line_opens

HOUSEKEEPING = frozenset({"memory", "memory_consolidation", "prewarm"})
"""Values of request_kind and subagent_kind for what is done outside the task."""
SUMMARY = user_line_opens("You are performing a CONTEXT CHECKPOINT COMPACTION")
"""Opens the last user message where a compaction is asked for."""


class Turn(Struct, frozen=True):
    """The part of the turn's metadata that tells calls apart."""

    request_kind: str | None = None
    subagent_kind: str | None = None


def turn_of(marks: CallMarks) -> Turn:
    """What the header says; nothing, where it cannot be read."""
    try:
        return msgspec.json.decode(marks.headers.get("x-codex-turn-metadata", "{}"), type=Turn)
    except msgspec.MsgspecError:
        return Turn()


def kind(wanted: str) -> Sign:
    """The metadata's request_kind."""
    return lambda marks: f"request_kind {wanted}" if turn_of(marks).request_kind == wanted else ""


def no_kind(marks: CallMarks) -> str:
    """The metadata names no kind."""
    return "" if turn_of(marks).request_kind else "no request_kind"


def housekeeping(marks: CallMarks) -> str:
    """Memories and the like."""
    turn = turn_of(marks)
    found = {turn.request_kind, turn.subagent_kind, marks.headers.get("x-openai-subagent")}
    return ", ".join(sorted(name for name in found if name in HOUSEKEEPING and name))


def below(marks: CallMarks) -> str:
    """A sub-agent's, by its metadata, its own header or its parent's."""
    subagent = turn_of(marks).subagent_kind or marks.headers.get("x-openai-subagent")
    if subagent:
        return f"subagent_kind {subagent}"
    return "x-codex-parent-thread-id" if "x-codex-parent-thread-id" in marks.headers else ""


def not_below(marks: CallMarks) -> str:
    """Main's."""
    return "" if below(marks) else "no subagent_kind"


TABLE = Table(
    "codex",
    1,
    (
        rule(Role.AUXILIARY, housekeeping),
        rule(Role.SUB_AGENT_SUMMARY, kind("compaction"), below),
        rule(Role.SUB_AGENT_SUMMARY, no_kind, SUMMARY, below),
        rule(Role.MAIN_SUMMARY, kind("compaction"), not_below),
        rule(Role.MAIN_SUMMARY, no_kind, SUMMARY, not_below),
        rule(Role.SUB_AGENT, kind("turn"), below),
        rule(Role.MAIN, kind("turn"), not_below),
    ),
)
