"""What the model sees, and scripts that answer it.

Invariant: a scenario knows nothing but the decoded prompt: it plays the policy.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.conformance.cells import Say

TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
RESULT = "<tool_response>"


@dataclass(frozen=True)
class Seen:
    """One prompt, decoded."""

    text: str
    """All of it."""

    @cached_property
    def turns(self) -> list[tuple[str, str]]:
        """(system, user or assistant; its text) without the opening of the next answer."""
        return [(match[1], match[2]) for match in TURN.finditer(self.text)][:-1]

    @property
    def system(self) -> str:
        """The first turn's text, if it is a system's."""
        role, text = self.turns[0]
        return text if role == "system" else ""

    @property
    def users(self) -> list[str]:
        """Texts of user turns, tool results left out."""
        return [text for role, text in self.turns if role == "user" and RESULT not in text]

    @property
    def results(self) -> list[str]:
        """Texts of turns of tool results."""
        return [text for role, text in self.turns if role == "user" and RESULT in text]

    @property
    def said(self) -> list[str]:
        """The policy's own turns so far."""
        return [text for role, text in self.turns if role == "assistant"]

    @property
    def last(self) -> str:
        """What is to be answered."""
        return self.turns[-1][1]


Scenario = Callable[[Seen], Say]


class Lines:
    """Answers in order, one queue for each conversation.

    A conversation is known by a text in its user turns; the first key that is found decides, so the
    more special ones come first (a compaction's prompt before the conversation that it sums up).
    """

    def __init__(self, lines: Mapping[str, Sequence[Say]]) -> None:
        self._lines = {key: list(answers) for key, answers in lines.items()}

    def __call__(self, seen: Seen) -> Say:
        told = "\n".join(seen.users)
        for key, answers in self._lines.items():
            if key in told:
                if not answers:
                    return Say("", error=f"no answer is left for {key!r}; last: {seen.last[-300:]}")
                return answers.pop(0)
        return Say("", error=f"no conversation for {told[-300:]!r}")

    @property
    def left(self) -> list[str]:
        """Names of answers that nobody asked for."""
        return [say.name for answers in self._lines.values() for say in answers]


def call(name: str, **arguments: object) -> str:
    """A tool call in Qwen3's words."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def calls(*texts: str) -> str:
    """Several tool calls in one answer."""
    return "\n".join(texts)
