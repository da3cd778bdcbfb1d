"""What a dialect must know, and the pieces that the dialects share.

Invariant: a dialect is pure: bytes and values in, bytes and values out. It never waits.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.messages import Json, Message
from opengyre.proxy.refusals import Refusal, bad

T = TypeVar("T")


class Dialect(Protocol):
    """One API that harnesses speak."""

    name: str
    tool_prefix: str
    """How ids of tool calls start."""
    ignored: frozenset[str]
    """Top-level keys of a request that may differ between retries of one call."""

    def parse(self, body: dict[str, Json]) -> Asked:
        """Raises Refusal when the request makes no sense or asks for what is not served."""
        ...

    def whole(self, asked: Asked, answer: Answer) -> dict[str, Json]:
        """The body of an answer that is not streamed."""
        ...

    def opening(self, asked: Asked, job: Job) -> bytes:
        """The first part of a stream, sent when the answer takes its time; tells nothing of it."""
        ...

    def ping(self) -> bytes:
        """A sign of life on a waiting stream."""
        ...

    def events(self, asked: Asked, answer: Answer) -> Iterator[bytes]:
        """The rest of the stream."""
        ...

    def error(self, refusal: Refusal) -> dict[str, Json]:
        """The body of a refusal."""
        ...


def convert(body: dict[str, Json], kind: type[T]) -> T:
    """The body as a typed request; what is not asked for in the type is left out."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise bad(f"wanted a request of this API; {error}") from error


def join_texts(texts: Sequence[str]) -> str:
    """Text parts as one text; empty ones do not count."""
    return "\n".join(text for text in texts if text)


def split_system(messages: Sequence[Message], first: str = "") -> tuple[str, tuple[Message, ...]]:
    """(the system text, the rest): leading system messages belong to the head."""
    count = 0
    while count < len(messages) and messages[count].role == "system":
        count += 1
    texts = [first, *(message.text for message in messages[:count])]
    return "\n\n".join(text for text in texts if text), tuple(messages[count:])


def arguments_of(text: str) -> Json:
    """Arguments as JSON, or the text itself when they are not an object."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def arguments_text(arguments: Json) -> str:
    """Arguments as harnesses get them in one string."""
    return json.dumps(arguments, ensure_ascii=False)


def sse(data: Json, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def no_images() -> Refusal:
    """The policy reads text only."""
    return bad("wanted text; found an image or a document; this policy reads text only")
