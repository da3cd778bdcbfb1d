"""Arguments that stand between tags as plain text, typed by the tool's schema.

Invariant: what is written for a value that its schema allows reads as that value again; without a
schema, for every value. A string is written as it is. Only where it would read as something else
(a number where numbers are allowed, text with the closing tags in it, a control token) it is
written as JSON with its "<" escaped, and text is read that way only if it had to be written so.
"""

import bisect
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from opengyre.proxy.families.calls import READER, write_json
from opengyre.proxy.messages import Json, too_deep

ANY = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
"""What a value without a schema may be."""
NAMED = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
"""Models write both; templates differ in which."""


class Ends:
    """Where values can end in a text; found once, since a policy may repeat itself for pages."""

    def __init__(self, closing: re.Pattern[str], text: str) -> None:
        self._places = [match.start() for match in closing.finditer(text)]

    def after(self, position: int) -> int | None:
        """The first from here on."""
        index = bisect.bisect_left(self._places, position)
        return self._places[index] if index < len(self._places) else None


@dataclass(frozen=True, slots=True)
class PlainValues:
    """How one family writes and reads them."""

    closing: re.Pattern[str]
    """What would end a value if it stood inside it."""
    controls: tuple[str, ...]
    """Tokens that must not come from a value."""
    python_names: bool = False
    """True, False and None instead of JSON's names."""

    def write(self, value: Json, schema: Json) -> str:
        """The text between the tags."""
        text = value if isinstance(value, str) else self._literal(value)
        return (
            text
            if self._safe(text) and _same(self.read(text, schema), value)
            else self._quote(value)
        )

    def read(self, text: str, schema: Json) -> Json:
        """The value of a text between the tags."""
        allowed = allowed_types(schema)
        unquoted = self._unquoted(text, schema)
        if unquoted is not None:
            return unquoted
        if allowed == {"string"}:
            return text
        found = _read_literal(text)
        return text if found is None or _type(found[0]) not in _wider(allowed) else found[0]

    def _literal(self, value: Json) -> str:
        if self.python_names and (value is None or isinstance(value, bool)):
            return str(value)
        return json.dumps(value, ensure_ascii=False)

    def _quote(self, value: Json) -> str:
        """JSON without any tag or control token in it."""
        return write_json(value, self.controls).replace("<", "\\u003c")

    def _safe(self, text: str) -> bool:
        return not self.closing.search(text) and not any(mark in text for mark in self.controls)

    def _unquoted(self, text: str, schema: Json) -> str | None:
        """The string that this is the quoted form of, if it had to be quoted."""
        found = _read_literal(text) if text[:1] == '"' else None
        value = found[0] if found else None
        if not isinstance(value, str) or self._quote(value) != text:
            return None
        plain = self._safe(value) and _same(self.read(value, schema), value)
        return None if plain else value


def allowed_types(schema: Json) -> frozenset[str]:
    """The JSON types that a schema lets through, as far as it says."""
    if not isinstance(schema, dict):
        return ANY
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named}) & ANY or ANY
    if isinstance(named, list):
        return frozenset(name for name in named if isinstance(name, str)) & ANY or ANY
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return frozenset(map(_type, choices))
    return _union([schema.get("anyOf"), schema.get("oneOf")])


def _union(lists: Sequence[Json]) -> frozenset[str]:
    found: frozenset[str] = frozenset()
    for choices in lists:
        for choice in choices if isinstance(choices, list) else []:
            found |= allowed_types(choice)
    return found or ANY


def _wider(allowed: frozenset[str]) -> frozenset[str]:
    """Integers are numbers too; a string never comes from a literal."""
    return (allowed | {"integer"} if "number" in allowed else allowed) - {"string"}


def _type(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _same(one: Json, two: Json) -> bool:
    return json.dumps(one) == json.dumps(two)


def _read_literal(text: str) -> tuple[Json] | None:
    """The literal, if the whole text is one that can be passed on as JSON."""
    if text in NAMED:
        return (NAMED[text],)
    try:
        value: Json = READER.decode(text)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return None if too_deep(value) else (value,)
