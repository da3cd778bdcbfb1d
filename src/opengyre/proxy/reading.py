"""Reads request bodies; what an earlier request of the execution held in the same bytes is not read.

Invariant: a request read from a cut on means what it means read whole. A cut lies right before an
answer of the assistant that follows something else: no dialect merges messages across it. A past
that the recorded trie does not hold is read after all (Past.whole).
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from opengyre.proxy.answers import Asked
from opengyre.proxy.bodies import decode, digest
from opengyre.proxy.cuts import TAIL, Cut, Found, Lines, Start, locate
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.messages import Conversation, Json, Turn, canonical_json, turn_digest
from opengyre.proxy.refusals import Refusal

LISTS = ("messages", "input")
"""Where the dialects have the conversation."""
ANSWERS = frozenset({"reasoning", "function_call", "custom_tool_call"})
"""Types of items that are the assistant's without saying so."""
LEADING = frozenset({"system", "developer"})
"""Roles that belong to the head when they come first."""


@dataclass(slots=True)
class ReadBefore:
    """The past of a conversation; see messages.Past."""

    keys: Sequence[tuple[bytes, str]]
    last_user_text: str
    last_call_ids: Sequence[str]
    read: Callable[[], Conversation] | None

    def whole(self) -> Conversation:
        assert self.read is not None, "its body was let go"
        return self.read()


@dataclass(frozen=True, slots=True)
class Reading:
    """A request, and what its retries have in common."""

    asked: Asked
    digest: bytes

    def let_go(self) -> None:
        """The prompt is made: the body need not wait for the answer with us."""
        past = self.asked.conversation.past
        if isinstance(past, ReadBefore):
            past.read = None


@dataclass(frozen=True, slots=True)
class Part:
    """What was read of a body."""

    body: bytes
    text: bytes
    """All of it, or what rest_of left."""
    found: Found | None
    asked: Asked
    items: list[Json]
    chains: list[bytes]
    """After each of the items that are new, and before the first."""
    list_at: int
    ends: list[int]
    """Of the items, in text."""

    @property
    def known(self) -> int:
        """Items that were known already: the leading ones, if there is a cut."""
        return self.found.cut.start.leading if self.found else 0


class Reader:
    """What was read in one execution."""

    def __init__(self) -> None:
        self.lines = Lines()

    def read(
        self, dialect: Dialect, body: bytes, headers: dict[str, str], found: Found | None
    ) -> Reading:
        """The request in this body; found: what lines.find said of it. Raises Refusal."""
        reading = self.read_rest(dialect, body, headers, found)
        if reading is None:
            reading = self.read_rest(dialect, body, headers, None)
        assert reading is not None
        return reading

    def read_rest(
        self, dialect: Dialect, body: bytes, headers: dict[str, str], found: Found | None
    ) -> Reading | None:
        """The same, or None where what comes after the cut cannot be understood by itself."""
        text = found.cut.rest_of(body) if found else body
        try:
            value = decode(text)
            asked = dialect.parse(value)
        except Refusal:
            if found is None:
                raise
            return None  # a refusal names a place in the whole
        name = next((name for name in LISTS if isinstance(value.get(name), list)), "")
        listed = value.get(name)
        items = listed if isinstance(listed, list) else []
        places = locate(text, name)
        if found and not (
            _goes_on(items, asked.conversation, found.cut)
            and places is not None
            and places[0] == found.cut.start.list_at
        ):
            return None
        new = items[found.cut.start.leading :] if found else items
        chains = list(
            itertools.accumulate(new, _chained, initial=found.cut.chain if found else b"")
        )
        if places is not None:
            self._remember(Part(body, text, found, asked, items, chains, *places))
        if found:
            past = ReadBefore(
                found.cut.all_keys(),
                found.cut.last_user_text,
                found.cut.last_call_ids,
                lambda: dialect.parse(decode(body)).conversation,
            )
            asked = replace(asked, conversation=replace(asked.conversation, past=past))
        ignored = dialect.ignored | {name}
        return Reading(asked, digest(dialect.name, value, ignored, headers, chains[-1]))

    def _remember(self, part: Part) -> None:
        cuts = list(_cuts(part))
        if cuts:
            self.lines.put(cuts[-1], instead_of=part.found.cut if part.found else None)


def _goes_on(items: list[Json], conversation: Conversation, cut: Cut) -> bool:
    """Whether an answer comes first in the rest: as it was sent and as it was understood."""
    sent, understood = items[cut.start.leading :], conversation.messages
    return bool(sent and understood) and _is_answer(sent[0]) and understood[0].role == "assistant"


def _cuts(part: Part) -> Iterator[Cut]:
    """Before each run of answers among the new items, and one at the end; each knows the one before."""
    turns = part.asked.conversation.turns()
    leading = _leading(part.items)
    answers = [_is_answer(item) for item in part.items[leading:]]
    at_items = [leading + place for place in _run_starts(answers)]
    at_turns = _run_starts([turn[0].role == "assistant" for turn in turns])
    if len(at_items) != len(at_turns):
        return  # some item became no turn: where the others belong is not certain
    if answers and not answers[-1]:
        at_items.append(len(part.items))
        at_turns.append(len(turns))
    cut = part.found.cut if part.found else None
    hasher = part.found.hasher.copy() if part.found else hashlib.sha256()
    shift = len(part.body) - len(part.text)
    done, start = (0, cut.start) if cut else (0, _start(part, leading))
    hashed = cut.end if cut else 0
    for item, turn in zip(at_items, at_turns, strict=True):
        if turn == done:
            continue  # the cut that it was read from, or an answer that opens the conversation
        end = part.ends[item - 1] + shift
        hasher.update(memoryview(part.body)[hashed:end])
        cut = Cut(
            start=start,
            before=cut,
            end=end,
            tail=part.body[max(0, end - TAIL) : end],
            digest=hasher.digest(),
            keys=tuple((turn_digest(one), one[0].thinking) for one in turns[done:turn]),
            chain=part.chains[item - part.known],
            last_user_text=_last_user_text(turns[done:turn], cut),
            last_call_ids=_last_call_ids(turns[done:turn], cut),
        )
        yield cut
        done, hashed = turn, end


def _start(part: Part, leading: int) -> Start:
    head_end = part.ends[leading - 1] if leading else part.list_at + 1
    return Start(part.list_at, head_end, leading)


def _leading(items: list[Json]) -> int:
    leads = itertools.takewhile(
        lambda item: isinstance(item, dict) and item.get("role") in LEADING, items
    )
    return sum(1 for _ in leads)


def _is_answer(item: Json) -> bool:
    return isinstance(item, dict) and (
        item.get("role") == "assistant" or item.get("type") in ANSWERS
    )


def _run_starts(answers: list[bool]) -> list[int]:
    """Where runs of answers begin."""
    before = [False, *answers]
    return [place for place, is_one in enumerate(answers) if is_one and not before[place]]


def _last_user_text(turns: list[Turn], before: Cut | None) -> str:
    texts = [turn[0].text for turn in turns if turn[0].role == "user"]
    return texts[-1] if texts else before.last_user_text if before else ""


def _last_call_ids(turns: list[Turn], before: Cut | None) -> tuple[str, ...]:
    calling = [turn[0].calls for turn in turns if turn[0].calls]
    if calling:
        return tuple(call.call_id for call in calling[-1])
    return before.last_call_ids if before else ()


def _chained(chain: bytes, item: Json) -> bytes:
    return hashlib.blake2b(chain + canonical_json(item).encode(), digest_size=16).digest()
