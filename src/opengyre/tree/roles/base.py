"""What a call's role is read from, and how a table of rules reads it.

Invariant: a table is tried from the top and the first rule that holds decides; what it saw is
recorded with the call, under the table's version. Tables are data: nothing is remembered in them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from opengyre.core.reasons import Role

PRIORITY = (Role.MAIN, Role.MAIN_SUMMARY, Role.SUB_AGENT, Role.SUB_AGENT_SUMMARY)
"""The trainable roles, in the order in which selection serves them."""


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
    """Its place in the tree: the role of the newest call that shares a tool call or a session with
    this one."""


Sign = Callable[[CallMarks], str]
"""What was seen, in words for people; empty when the sign is not there."""


@dataclass(frozen=True)
class Rule:
    """All signs together give the role."""

    role: Role
    signs: tuple[Sign, ...]

    def why(self, marks: CallMarks) -> str:
        """What was seen; empty when the rule does not hold."""
        seen = [sign(marks) for sign in self.signs]
        return ", ".join(seen) if all(seen) else ""


@dataclass(frozen=True)
class Table:
    """The rules of one harness."""

    harness: str
    version: int
    """Raised whenever a rule changes, so that recorded reasons tell which rules gave them."""
    rules: tuple[Rule, ...]

    def classify(self, marks: CallMarks) -> tuple[Role, str]:
        """The role of the first rule that holds; UNKNOWN when none does."""
        for rule in self.rules:
            why = rule.why(marks)
            if why:
                return rule.role, f"{self.name}: {why}"
        return Role.UNKNOWN, f"{self.name}: no rule holds"

    @property
    def name(self) -> str:
        return f"{self.harness} table {self.version}"


def trains(role: Role) -> bool:
    """Whether tokens that a call of this role sampled may be trained."""
    return role in PRIORITY


def rule(role: Role, *signs: Sign) -> Rule:
    """A rule."""
    return Rule(role, signs)


def header(name: str) -> Sign:
    """The request has this header."""
    return lambda marks: name if name in marks.headers else ""


def no_header(name: str) -> Sign:
    """The request does not have it."""
    return lambda marks: "" if name in marks.headers else f"no {name}"


def system_opens(*openings: str) -> Sign:
    """The system text starts with one of these."""

    def seen(marks: CallMarks) -> str:
        found = next((text for text in openings if marks.system.startswith(text)), "")
        return f"system {found!r}" if found else ""

    return seen


def other_system(opening: str) -> Sign:
    """The system text starts with something else."""

    def seen(marks: CallMarks) -> str:
        if marks.system.startswith(opening):
            return ""
        return f"another system text: {marks.system[: 2 * len(opening)]!r}"

    return seen


def user_line_opens(*openings: str) -> Sign:
    """A line of the last user message starts with one of these."""
    return lambda marks: _opened(marks.last_user_text, openings)


def system_line_opens(*openings: str) -> Sign:
    """A line of the system text does: programs put lines of their own in front."""

    def seen(marks: CallMarks) -> str:
        found = _opened(marks.system, openings)
        return f"system line {found}" if found else ""

    return seen


def _opened(text: str, openings: tuple[str, ...]) -> str:
    """The opening that was found, quoted; empty without one."""
    for line in text.splitlines():
        if line.startswith(openings):
            return repr(next(one for one in openings if line.startswith(one)))
    return ""


def tools(marks: CallMarks) -> str:
    """The request offers tools."""
    return "tools" if marks.tool_names else ""


def no_tools(marks: CallMarks) -> str:
    """It offers none."""
    return "" if marks.tool_names else "no tools"


def of_sub_agent(marks: CallMarks) -> str:
    """An earlier call of the same conversation was a sub-agent's."""
    below = marks.earlier in {Role.SUB_AGENT, Role.SUB_AGENT_SUMMARY}
    return "its conversation is a sub-agent's" if below else ""


def of_main(marks: CallMarks) -> str:
    """None was: a conversation of which nothing is known counts as main's."""
    return "" if of_sub_agent(marks) else "its conversation is main's"
