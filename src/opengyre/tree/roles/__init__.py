"""Which part of an execution a call plays, read off the marks that its harness leaves.

Invariant: one table per harness. A call that no rule knows is unknown, and unknown is not trained
unless the run was told to take it for main.
"""

from opengyre.core.reasons import Role
from opengyre.tree.roles import claude_code, codex, opencode, plain, qwen_code
from opengyre.tree.roles.base import PRIORITY, CallMarks, Rule, Table, trains

__all__ = ["PRIORITY", "TABLES", "CallMarks", "Rule", "Table", "classify", "trains"]

TABLES: dict[str, Table] = {
    table.harness: table
    for table in (
        claude_code.TABLE,
        codex.TABLE,
        qwen_code.TABLE,
        opencode.TABLE,
        plain.MINI_SWE_AGENT,
        plain.COMMAND,
    )
}
"""By harness name."""


def classify(harness: str, marks: CallMarks, *, unknown_as_main: bool = False) -> tuple[Role, str]:
    """The call's role, and what decided it: the table with its version, and what was seen."""
    table = TABLES.get(harness)
    if table is None:
        known = ", ".join(sorted(TABLES))
        role, why = Role.UNKNOWN, f"no table for {harness}; known: {known}"
    else:
        role, why = table.classify(marks)
    if role is Role.UNKNOWN and unknown_as_main:
        return Role.MAIN, f"{why}; taken for main, since harness.train_unknown is on"
    return role, why
