"""Qwen Code 0.24: no header tells anything; system texts and one prompt do."""

from opengyre.core.reasons import Role
from opengyre.tree.roles.base import (
    Table,
    no_tools,
    of_main,
    of_sub_agent,
    other_system,
    rule,
    system_opens,
    tools,
    user_line_opens,
)

MAIN = "You are Qwen Code"
"""Opens the system text of the program's own conversation; sub-agents have others."""
SUMMARY = "You are the component that summarizes a conversation"
"""Opens the last user message of a compaction that keeps its conversation's head, or else the system
text of one that does not."""
HOUSEKEEPING = (
    "You are now acting as the managed memory extraction subagent",
    "You are performing a managed memory dream",
    "You are saving one explicit durable memory",
    "You are selecting memories",
    "You are reviewing this conversation to extract reusable skills",
)
"""Open the system texts of what is done outside the task."""

TABLE = Table(
    "qwen-code",
    1,
    (
        rule(Role.AUXILIARY, system_opens(*HOUSEKEEPING)),
        rule(Role.SUB_AGENT_SUMMARY, system_opens(SUMMARY), of_sub_agent),
        rule(Role.MAIN_SUMMARY, system_opens(SUMMARY), of_main),
        rule(Role.MAIN_SUMMARY, user_line_opens(SUMMARY), system_opens(MAIN)),
        rule(Role.SUB_AGENT_SUMMARY, user_line_opens(SUMMARY), other_system(MAIN)),
        rule(Role.MAIN, system_opens(MAIN)),
        rule(Role.AUXILIARY, no_tools, other_system(MAIN)),
        rule(Role.SUB_AGENT, tools, other_system(MAIN)),
    ),
)
