"""Tool calls in sampled text: taken out of it, or left in it when they cannot be read.

Invariant: a call that is taken out is written again as the same call; everything else of the text
stays text. Nothing that a harness cannot be told as JSON (infinities, a key twice, half of a
surrogate pair) is taken for a call.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from opengyre.proxy.families.base import ParsedCall
from opengyre.proxy.messages import Json, Tool, too_deep


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key twice: the call would not survive being written again")
    return made


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(f"{digits} is beyond what a number can hold")
    return value


READER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
"""Reads what every JSON reader reads alike."""


class Found(NamedTuple):
    """A call that was read at text[start:end]."""

    start: int
    end: int
    call: ParsedCall


class Split(NamedTuple):
    """A text without its calls."""

    text: str
    calls: tuple[ParsedCall, ...]
    tail: bool
    """Text follows a call: written again, it would come before."""


def find_calls(
    text: str, mark: str, read: Callable[[str, int], tuple[int, ParsedCall] | None]
) -> list[Found]:
    """What read makes of the text after each mark: (where the call ends, the call), or None."""
    found = []
    start = text.find(mark)
    while start >= 0:
        after = start + len(mark)
        got = read(text, after)
        if got is not None:
            found.append(Found(start, got[0], got[1]))
            after = got[0]
        start = text.find(mark, after)
    return found


def split_calls(text: str, found: Sequence[Found]) -> Split:
    """The calls, and what stands around them."""
    if not found:
        return Split(text if text.strip() else "", (), tail=False)
    between, position = [], 0
    for start, end, _call in found:
        between.append(text[position:start])
        position = end
    between.append(text[position:])
    kept = "\n".join(part.strip("\n") for part in between if part.strip())
    return Split(kept, tuple(call for *_, call in found), any(map(str.strip, between[1:])))


def skip_space(text: str, position: int) -> int:
    """Where the next sign is."""
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def read_json(text: str, position: int) -> tuple[int, Json] | None:
    """(where it ends, the JSON value that begins there), or None."""
    try:
        value, end = READER.raw_decode(text, skip_space(text, position))
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return None if too_deep(value) else (end, value)


def read_object(text: str, position: int) -> tuple[int, dict[str, Json]] | None:
    """The same for a JSON object."""
    got = read_json(text, position)
    return (got[0], got[1]) if got and isinstance(got[1], dict) else None


def write_json(value: Json, controls: Iterable[str]) -> str:
    """JSON as templates write it, but no text in it can be taken for a control token."""
    text = json.dumps(value, ensure_ascii=False)
    for token in controls:
        text = text.replace(token, f"\\u{ord(token[0]):04x}{token[1:]}")
    return text


def properties(tools: Sequence[Tool], name: str) -> dict[str, Json]:
    """The schemas of a tool's arguments, by name."""
    for tool in tools:
        if tool.name == name:
            found = tool.parameters.get("properties")
            return found if isinstance(found, dict) else {}
    return {}
