"""Claude Code 2.1: sub-agents have a header of their own, compactions a prompt."""

from opengyre.core.reasons import Role
from opengyre.tree.roles.base import (
    CallMarks,
    Table,
    header,
    no_header,
    no_tools,
    rule,
    user_line_opens,
)

AGENT = "x-claude-code-agent-id"
SUMMARY = user_line_opens("CRITICAL: Respond with TEXT ONLY")
"""Opens the text block that is appended where a compaction is asked for."""
PAGE = user_line_opens("Provide a concise response based ")
"""Follows the text of a page that WebFetch has read, whoever wrote that page."""


def server_tool_only(marks: CallMarks) -> str:
    """A web search asks the API's own server for a page, beside the conversation."""
    if marks.server_tools and set(marks.tool_names) <= set(marks.server_tools):
        return f"server tool only: {', '.join(marks.server_tools)}"
    return ""


def structured(marks: CallMarks) -> str:
    """Of calls without tools, only the session's title is asked for in a schema."""
    return "a json_schema answer: a title" if marks.output_format == "json_schema" else ""


TABLE = Table(
    "claude-code",
    2,
    (
        rule(Role.AUXILIARY, server_tool_only),
        rule(Role.AUXILIARY, no_tools, structured),
        rule(Role.AUXILIARY, no_tools, PAGE),
        rule(Role.SUB_AGENT_SUMMARY, header(AGENT), SUMMARY),
        rule(Role.SUB_AGENT, header(AGENT)),
        rule(Role.MAIN_SUMMARY, SUMMARY, no_header(AGENT)),
        rule(Role.MAIN, no_header(AGENT)),
    ),
)
