"""Claude Code 2.1: sub-agents have a header of their own, compactions and helpers a prompt.

Invariant: a helper is known by words that the program itself puts into its request, each of which was
found in the programs named beside it; a call without them is the conversation's.
"""

from opengyre.core.reasons import Role
from opengyre.tree.roles.base import (
    CallMarks,
    Table,
    header,
    no_header,
    no_tools,
    rule,
    system_line_opens,
    user_line_opens,
)

AGENT = "x-claude-code-agent-id"
SUMMARY = user_line_opens("CRITICAL: Respond with TEXT ONLY")
"""Opens the text block that is appended where a compaction is asked for."""
PAGE = user_line_opens("Provide a concise response based ")
"""Follows the text of a page that WebFetch has read, whoever wrote that page."""

BOTH = ("2.1.220", "2.1.332")
OLDER, NEWER = BOTH[:1], BOTH[1:]
BESIDE = {
    "[SUGGESTION MODE: ": BOTH,
    "The user stepped away and is coming back.": BOTH,
    "<system-reminder>This is a side question from the user.": BOTH,
    "Generate a short kebab-case name (2-4 words) that captures the main topic": BOTH,
    "Describe your most recent action in 3-5 words": OLDER,
    "You are now acting as the memory extraction subagent.": BOTH,
    "# Dream: Memory Consolidation": BOTH,
}
"""What a helper asks with the head and the history of a conversation, of main or of a sub-agent: the next
prompt, a recap after a pause, /btw, a session's name, an agent's progress, memories (two). By the
versions that have it in one piece: the newer one puts the question for progress together from parts."""
APART = {
    "Write a short summary label describing what these tool calls accomplished.": BOTH,
    "You are a date/time parser that converts natural language into ISO 8601": BOTH,
    "Generate a concise, technical issue title (max 80 chars)": BOTH,
    "You are evaluating a stop-condition hook in Claude Code": BOTH,
    "You are evaluating a hook in Claude Code": NEWER,
    "You are a security monitor for autonomous AI coding agents.": BOTH,
    "You are an expert reviewer of auto mode": BOTH,
    "You are a strict, terse evaluation judge": BOTH,
    "You write a 3-5 word progress label for a background agent": NEWER,
    "You classify artifact comment threads for dispatch.": NEWER,
    "You write single comment replies on artifact comment threads.": NEWER,
    "Generate a concise, sentence-case title (3-7 words)": OLDER,
}
"""Opens the system text of a helper without tools, behind the program's own lines: labels and titles, dates,
hooks that are prompts, the check of automatic mode, an agent's progress, comments on artifacts."""
ALONE = {
    "2-4 word lowercase label for this job.": BOTH,
    "Summarize this portion of a Claude Code session transcript.": BOTH,
    "Analyze this Claude Code usage data": BOTH,
}
"""Opens the question of a helper that has neither tools nor a system text of its own: a background job's
name, /insights."""
PREFIX = "Your task is to process Bash commands that an AI coding agent wants to run."
"""The system text of 2.1.220's look at a command; the program puts it together from parts."""
VERIFIER = "You are verifying a stop condition in Claude Code."
"""The system text of a hook that is an agent; it has tools. Both versions."""
PROBES = frozenset({"quota", "Hi", "."})
"""The whole question of a request that asks for one token: quota, a model's name, a count of tokens."""
OWN_LINES = ("You are Claude Code", "You are a Claude agent")
"""What the program puts before every system text."""


def server_tool_only(marks: CallMarks) -> str:
    """A web search asks the API's own server for a page, beside the conversation."""
    if marks.server_tools and set(marks.tool_names) <= set(marks.server_tools):
        return f"server tool only: {', '.join(marks.server_tools)}"
    return ""


def structured(marks: CallMarks) -> str:
    """Of calls without tools, only the session's title is asked for in a schema."""
    return "a json_schema answer: a title" if marks.output_format == "json_schema" else ""


def bare(marks: CallMarks) -> str:
    """No system text but the program's own line."""
    lines = [line for line in marks.system.splitlines() if line.strip()]
    own = len(lines) <= 1 and all(line.startswith(OWN_LINES) for line in lines)
    return "no system text of its own" if own else ""


def probe(marks: CallMarks) -> str:
    """A question that nobody wants answered."""
    text = marks.last_user_text.strip()
    return f"the probe {text!r}" if text in PROBES else ""


TABLE = Table(
    "claude-code",
    3,
    (
        rule(Role.AUXILIARY, server_tool_only),
        rule(Role.AUXILIARY, no_tools, structured),
        rule(Role.AUXILIARY, no_tools, PAGE),
        rule(Role.AUXILIARY, no_tools, system_line_opens(*APART, PREFIX)),
        rule(Role.AUXILIARY, no_tools, bare, user_line_opens(*ALONE)),
        rule(Role.AUXILIARY, no_tools, bare, probe),
        rule(Role.AUXILIARY, system_line_opens(VERIFIER)),
        rule(Role.AUXILIARY, user_line_opens(*BESIDE)),
        rule(Role.SUB_AGENT_SUMMARY, header(AGENT), SUMMARY),
        rule(Role.SUB_AGENT, header(AGENT)),
        rule(Role.MAIN_SUMMARY, SUMMARY, no_header(AGENT)),
        rule(Role.MAIN, no_header(AGENT)),
    ),
)
