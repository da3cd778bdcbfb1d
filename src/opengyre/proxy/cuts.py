"""Places in request bodies up to which they were read before.

Invariant: a cut is found in a body only if all bytes before it are those it was made from. It lies
right behind an item of the conversation's list; Start tells where that list is, which was proven to
be the body's own and not one inside something else.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

TAIL = 24
"""Bytes compared before a digest is taken: marks that move with the newest message end it."""
LINES = 32
"""Conversations of one execution that are remembered: main, sub-agents, and what they part into."""
SPACE = b" \t\r\n"
NEAR = 16
"""Bytes in which the comma after an item is looked for."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a conversation's list begins."""

    list_at: int
    head_end: int
    """Behind the leading system messages, or behind the bracket: read every time."""
    leading: int
    """How many they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """One place."""

    start: Start
    before: "Cut | None"
    end: int
    tail: bytes
    digest: bytes
    """Of all bytes up to end."""
    keys: tuple[tuple[bytes, str], ...]
    """Of the turns since the cut before: turn_digest and thinking."""
    chain: bytes
    """Stands for all items up to here, as JSON values."""
    last_user_text: str
    last_call_ids: tuple[str, ...]

    def may_end(self, body: bytes) -> bool:
        """Whether it is worth a digest: the same tail, and another item behind it."""
        if body[self.end - len(self.tail) : self.end] != self.tail:
            return False
        return body[self.end : self.end + NEAR].lstrip(SPACE)[:1] == b","

    def line(self) -> list["Cut"]:
        """From the first to this one."""
        cuts: list[Cut] = []
        cut: Cut | None = self
        while cut is not None:
            cuts.append(cut)
            cut = cut.before
        return cuts[::-1]

    def all_keys(self) -> list[tuple[bytes, str]]:
        """Of all turns before it."""
        return [key for cut in self.line() for key in cut.keys]

    def rest_of(self, body: bytes) -> bytes:
        """The body without the items that are known, leading system messages apart."""
        rest = body[self.end :].lstrip(SPACE)
        if not self.start.leading:
            rest = rest[1:]
        return body[: self.start.head_end] + rest


@dataclass(frozen=True, slots=True)
class Found:
    """A cut in a body, and the digest's state there."""

    cut: Cut
    hasher: "hashlib._Hash"


class Lines:
    """The cuts of one execution, line by line."""

    def __init__(self) -> None:
        self._last: dict[Cut, None] = {}
        """The last cut of each line, the newest line at the end."""

    def __len__(self) -> int:
        return len(self._last)

    def find(self, body: bytes) -> Found | None:
        """The last cut up to which this body is known."""
        for last in list(reversed(self._last)):  # a thread may add to it meanwhile
            found = _deepest(last, body)
            if found is not None:
                self.put(found.cut, instead_of=last)
                return found
        return None

    def put(self, last: Cut, *, instead_of: Cut | None) -> None:
        """A line goes on to this cut, or a new one begins; the oldest is forgotten."""
        if instead_of is not None:
            self._last.pop(instead_of, None)
        self._last.pop(last, None)
        self._last[last] = None
        if len(self._last) > LINES:
            del self._last[next(iter(self._last))]


def _deepest(last: Cut, body: bytes) -> Found | None:
    cut: Cut | None = last
    while cut is not None and not cut.may_end(body):
        cut = cut.before
    if cut is None:
        return None
    hasher = hashlib.sha256(memoryview(body)[: cut.end])
    return Found(cut, hasher) if hasher.digest() == cut.digest else _from_start(cut.line(), body)


def _from_start(line: list[Cut], body: bytes) -> Found | None:
    """Something before the tail differs: up to where do the bytes agree?"""
    found, at, hasher = None, 0, hashlib.sha256()
    for cut in line:
        hasher.update(memoryview(body)[at : cut.end])
        at = cut.end
        if hasher.digest() != cut.digest:
            break
        if cut.may_end(body):
            found = Found(cut, hasher.copy())
    return found


def locate(text: bytes, name: str) -> tuple[int, list[int]] | None:
    """(where the top-level list of that name begins, where each item ends), if that is certain."""
    try:
        whole = bytes(msgspec.json.decode(text, type=dict[str, msgspec.Raw])[name])
        items = msgspec.json.decode(whole, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, KeyError):
        return None
    list_at = next(_places(text, name, whole), None)
    if list_at is None:
        return None
    ends, at = [], list_at + 1
    for item in map(bytes, items):
        at = text.find(item[:1], at)  # only white space and a comma lie between
        if not text.startswith(item, at):
            return None
        at += len(item)
        ends.append(at)
    return list_at, ends


def _places(text: bytes, name: str, whole: bytes) -> Iterator[int]:
    """Where this value may stand as the value of this key, at the top level."""
    key = f'"{name}"'.encode()
    at = text.find(key)
    while at >= 0:
        rest = text[at + len(key) : at + len(key) + 2 * NEAR]
        value = rest.lstrip(SPACE)[1:].lstrip(SPACE)
        begin = at + len(key) + len(rest) - len(value)
        if text.startswith(whole, begin) and _is_top_level(text[:begin], name):
            yield begin
        at = text.find(key, at + 1)


def _is_top_level(before: bytes, name: str) -> bool:
    try:
        value = msgspec.json.decode(before + b"null}", type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        return False
    return next(reversed(value), None) == name
