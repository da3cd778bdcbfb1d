"""What a harness wrote between two answers, read back from the rendered text of its turns.

Invariant: no character of a turn's body is lost; only the marks around turns are. Text in a markup
that is not known here stays one turn of the user.
"""

import re
from dataclasses import dataclass

ROLES = "system|developer|user|assistant|tool|observation"
OPENING = re.compile(rf"<\|im_start\|>({ROLES})\n?|<\|({ROLES})\|>\n?")
"""Begins a turn: as Qwen and Hermes models mark it, or as GLM models do."""

ENDING = re.compile(r"<\|im_end\|>\n?|\[gMASK\]<sop>|<\|endoftext\|>")
RESULT = re.compile(r"\n?<tool_response>\n(.*?)\n</tool_response>", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """One turn that was not sampled."""

    role: str
    """system, user, assistant (history that the harness brought back) or results."""
    text: str
    results: tuple[str, ...] = ()
    """Of tools, for role results."""


def turns_of(text: str, *, asks: bool) -> list[Written]:
    """The turns in a rendered suffix. asks: it ends with the opening of the answer to come."""
    found = list(OPENING.finditer(text))
    pieces = [("user", text[: found[0].start()] if found else text)]
    bounds = [*(mark.start() for mark in found), len(text)]
    for mark, end in zip(found, bounds[1:], strict=True):
        pieces.append((mark.group(1) or mark.group(2), text[mark.end() : end]))
    if asks and found and pieces[-1][0] == "assistant":
        pieces.pop()
    cleaned = [(role, ENDING.sub("", body)) for role, body in pieces]
    return [_turn(role, body) for role, body in cleaned if body.strip()]


def _turn(role: str, body: str) -> Written:
    results = tuple(RESULT.findall(body))
    if results and not RESULT.sub("", body).strip():
        return Written("results", body, results)
    if role in {"tool", "observation"}:
        return Written("results", body, (body.strip("\n"),))
    return Written("system" if role == "developer" else role, body.removesuffix("\n"))
