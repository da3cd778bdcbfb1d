"""Which agent program a call comes from, by the marks that it leaves in headers and prompts.

Invariant: what no mark tells is "command": a program with one conversation.
"""

from opengyre.core.reasons import Role
from opengyre.tree.roles import CallMarks, classify

AUTO = "auto"
"""Recognise the program of each call."""
OTHER = "command"


def recognise(marks: CallMarks) -> str:
    """A harness's name."""
    headers, agent = marks.headers, marks.headers.get("user-agent", "").lower()
    if agent.startswith("qwencode/") or marks.system.startswith("You are Qwen Code"):
        return "qwen-code"  # before Claude Code: in Anthropic mode its user-agent is claude-cli
    if "x-claude-code-session-id" in headers:
        return "claude-code"
    if any(name.startswith("x-codex-") for name in headers):
        return "codex"
    if agent.startswith("opencode/") or "x-session-id" in headers:
        return "opencode"
    return OTHER


def classify_any(harness: str, marks: CallMarks) -> tuple[Role, str]:
    """As tree.roles.classify, for a harness named "auto" too."""
    if harness != AUTO:
        return classify(harness, marks)
    role, why = classify(recognise(marks), marks)
    return role, f"{why} (program recognised)"
