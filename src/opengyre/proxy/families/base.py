"""What a model family must know, and how a conversation is encoded with it.

Invariant: encoding chunk by chunk equals encoding the whole text, because every chunk starts with
a token that the tokeniser splits at. An assistant's body is encoded apart from its opening, as it
is when the policy samples it: there the prompt ends with the opening. The token that ends an
answer belongs to what follows: to turn_end, or, where a family has none, to the next turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from opengyre.proxy.messages import Conversation, Json, Tool, Turn


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A tool call found in sampled text; it has no id yet."""

    name: str
    arguments: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Reply:
    """What sampled tokens say."""

    text: str
    thinking: str = ""
    calls: tuple[ParsedCall, ...] = ()
    malformed_calls: int = 0
    """Tool calls that could not be parsed; they stay in text."""
    faithful: bool = True
    """False when rendering this reply again cannot give the sampled text: unclosed reasoning,
    text after a tool call, control tokens inside."""


class Family(Protocol):
    """One model family: template, tool-call format, reasoning format, turn boundaries."""

    stop_ids: list[int]
    """Tokens that end an answer; the first of them is the usual one."""
    turn_end: str
    """Closes an assistant's turn; empty where the opening of the next turn does."""

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        """The chunk before the first turn; may be empty."""
        ...

    def render(self, turn: Turn) -> str:
        """The chunk of a turn that is not the assistant's."""
        ...

    def opening(self, before: Turn | None) -> str:
        """Opens an assistant's turn after that one; the prompt for an answer ends with it."""
        ...

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        """What follows opening in an assistant's turn, without turn_end."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids; special tokens in text become themselves."""
        ...

    def pieces(self, text: str) -> Iterator[list[int]]:
        """encode(text), a piece at a time; an empty one comes before one that will take long."""
        ...

    def fewest(self, text: str) -> int:
        """Tokens that encode(text) has at least, told without encoding it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ...

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        """What sampled ids say, a closing stop token included or not.

        tools are those of the prompt: formats that write arguments as plain text need their types.
        """
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A conversation as tokens; sampled holds [start, end) of each assistant's own tokens.

    A span starts after the assistant's opening and ends after its stop token, if one follows.
    """

    ids: list[int]
    sampled: list[tuple[int, int]]


def encode_turn(
    family: Family, turn: Turn, before: Turn | None = None, tools: Sequence[Tool] = ()
) -> list[int]:
    """One chunk, as it stands after the turn before it."""
    if turn[0].role != "assistant":
        return family.encode(family.render(turn))
    return encode_answer(family, family.encode(family.body(turn, tools)), before)


def encode_answer(family: Family, answer: list[int], before: Turn | None) -> list[int]:
    """An assistant's chunk around tokens of its own; a stop token among them becomes turn_end."""
    own = without_stop(family, answer)
    return family.encode(family.opening(before)) + own + family.encode(family.turn_end)


def without_stop(family: Family, answer: list[int]) -> list[int]:
    """The answer without the token that ended it."""
    return answer[:-1] if answer and answer[-1] in family.stop_ids else answer


def encode_conversation(family: Family, conversation: Conversation) -> Encoded:
    """All of it, exactly as the proxy would build it turn by turn.

    It does not add the opening of the next answer.
    """
    ids = family.encode(family.head(conversation.system, conversation.tools))
    spans = []
    before = None
    for turn in conversation.turns():
        chunk = encode_turn(family, turn, before, conversation.tools)
        if turn[0].role == "assistant":
            start = len(ids) + len(family.encode(family.opening(before)))
            spans.append((start, len(ids) + len(chunk) - len(family.encode(family.turn_end))))
        ids += chunk
        before = turn
    return Encoded(ids, [(start, _past_stop(family, ids, end)) for start, end in spans])


def _past_stop(family: Family, ids: list[int], end: int) -> int:
    return end + 1 if end < len(ids) and ids[end] in family.stop_ids else end


def render_conversation(family: Family, conversation: Conversation) -> str:
    """The text of all chunks, without the opening of the next answer."""
    chunks = [family.head(conversation.system, conversation.tools)]
    before = None
    for turn in conversation.turns():
        if turn[0].role == "assistant":
            body = family.body(turn, conversation.tools)
            chunks.append(family.opening(before) + body + family.turn_end)
        else:
            chunks.append(family.render(turn))
        before = turn
    return "".join(chunks)
