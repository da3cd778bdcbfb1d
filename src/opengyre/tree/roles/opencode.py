"""OpenCode 1.18: sub-agents name their parent's session, but their compactions do not."""

from opengyre.core.reasons import Role
from opengyre.tree.roles.base import (
    Table,
    header,
    no_header,
    of_main,
    of_sub_agent,
    rule,
    system_opens,
)

PARENT = "x-parent-session-id"
SUMMARY = system_opens("You are a context summarization agent")
TITLE = system_opens("You are a title generator")

TABLE = Table(
    "opencode",
    1,
    (
        rule(Role.AUXILIARY, TITLE),
        rule(Role.SUB_AGENT_SUMMARY, SUMMARY, header(PARENT)),
        rule(Role.SUB_AGENT_SUMMARY, SUMMARY, of_sub_agent),
        rule(Role.MAIN_SUMMARY, SUMMARY, of_main),
        rule(Role.SUB_AGENT, header(PARENT)),
        rule(Role.MAIN, no_header(PARENT)),
    ),
)
