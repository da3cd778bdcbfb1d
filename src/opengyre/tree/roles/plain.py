"""Programs with one conversation: mini-swe-agent, and any command that nothing is known of."""

from opengyre.core.reasons import Role
from opengyre.tree.roles.base import CallMarks, Table, rule


def always(_marks: CallMarks) -> str:
    """Every call has this sign."""
    return "this harness has one conversation"


MINI_SWE_AGENT = Table("mini-swe-agent", 1, (rule(Role.MAIN, always),))
COMMAND = Table("command", 1, (rule(Role.MAIN, always),))
