"""What a model family must know, and how a conversation is encoded with it.

Invariant: encoding chunk by chunk equals encoding the whole text, because every chunk starts with
a token that the tokeniser splits at. An assistant's body is encoded apart from its header, as it
is when the policy samples it: there the prompt ends with the header.
"""

from collections.abc import Sequence
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
    """One model family: template, tool-call format, stop tokens."""

    stop_ids: list[int]
    """Tokens that end an answer; the first of them is the one that opens turn_end."""
    generation_prompt: str
    """Opens the assistant's turn."""
    turn_end: str
    """Closes it; of this, what the policy did not sample itself is added."""

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        """The chunk before the first turn; may be empty."""
        ...

    def render(self, turn: Turn) -> str:
        """The chunk of a turn that is not the assistant's."""
        ...

    def body(self, turn: Turn) -> str:
        """What follows generation_prompt in an assistant's turn, without turn_end."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids; special tokens in text become themselves."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ...

    def parse(self, ids: Sequence[int]) -> Reply:
        """What sampled ids say, a closing stop token included or not."""
        ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A conversation as tokens; sampled holds [start, end) of each assistant's own tokens.

    A span starts after the assistant's header and ends after its stop token.
    """

    ids: list[int]
    sampled: list[tuple[int, int]]


def encode_assistant(family: Family, turn: Turn) -> tuple[list[int], int, int]:
    """An assistant's chunk as the policy would have sampled it, and its own span."""
    header = family.encode(family.generation_prompt)
    own = [*family.encode(family.body(turn)), family.stop_ids[0]]
    ending = closing(family, stopped=True)
    return header + own + ending, len(header), len(header) + len(own)


def encode_turn(family: Family, turn: Turn) -> list[int]:
    """One chunk."""
    if turn[0].role == "assistant":
        return encode_assistant(family, turn)[0]
    return family.encode(family.render(turn))


def closing(family: Family, *, stopped: bool) -> list[int]:
    """Tokens between an answer and the next chunk; all of turn_end when no stop was sampled."""
    ids = family.encode(family.turn_end)
    return ids[1:] if stopped else ids


def encode_conversation(family: Family, conversation: Conversation) -> Encoded:
    """All of it, exactly as the proxy would build it turn by turn.

    It does not add the generation prompt; add family.encode(family.generation_prompt) for one.
    """
    ids = family.encode(family.head(conversation.system, conversation.tools))
    spans = []
    for turn in conversation.turns():
        if turn[0].role == "assistant":
            chunk, start, end = encode_assistant(family, turn)
            spans.append((len(ids) + start, len(ids) + end))
        else:
            chunk = encode_turn(family, turn)
        ids += chunk
    return Encoded(ids, spans)


def render_conversation(family: Family, conversation: Conversation) -> str:
    """The text of all chunks, without the generation prompt."""
    chunks = [family.head(conversation.system, conversation.tools)]
    for turn in conversation.turns():
        if turn[0].role == "assistant":
            chunks.append(family.generation_prompt + family.body(turn) + family.turn_end)
        else:
            chunks.append(family.render(turn))
    return "".join(chunks)
