"""What a dialect must know, and the pieces that the dialects share.

Invariant: a dialect is pure: bytes and values in, bytes and values out. It never waits.
"""

import base64
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct

from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.messages import Json, Message, ToolCall, mended, too_deep
from opengyre.proxy.refusals import Refusal, bad

T = TypeVar("T")
TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
"""Types of parts that hold text."""
MEDIA = ("image", "document", "file", "audio", "video", "screenshot")
"""Words in the types of parts that no policy of ours can read."""

SEALED = "opengyre:"
"""Opens sealed thinking. It hides nothing: it carries thinking through clients that drop its text."""


class Dialect(Protocol):
    """One API that harnesses speak."""

    name: str
    tool_prefix: str
    """How ids of tool calls start."""
    request_id_header: str
    """Where its clients look for the id of a request."""
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

    def counted(self, tokens: int) -> dict[str, Json]:
        """The body that tells how many tokens a prompt has."""
        ...

    def models(self, names: Sequence[str]) -> dict[str, Json]:
        """The body that lists the models."""
        ...

    def model(self, name: str) -> dict[str, Json]:
        """One model of that list."""
        ...

    def status(self, refusal: Refusal) -> int:
        """The HTTP status that this API uses for it."""
        ...

    def error(self, refusal: Refusal, request_id: str) -> dict[str, Json]:
        """The body of a refusal."""
        ...


class Part(Struct):
    """A part of a message in OpenAI's dialects."""

    type: str
    text: str = ""
    refusal: str = ""


def convert(body: dict[str, Json], kind: type[T]) -> T:
    """The body as a typed request; what is not asked for in the type is left out."""
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        param = place.rstrip("`").lstrip(".") or None
        raise bad(f"wanted a request of this API; {what}", param) from error


def join_texts(texts: Sequence[str]) -> str:
    """Text parts as one text; empty ones do not count."""
    return "\n".join(text for text in texts if text)


def text_of(content: str | Sequence[Part] | None, place: str) -> str:
    """The text of a message's content. Raises Refusal for parts that are not text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, part in enumerate(content):
        if part.type not in TEXTS and part.type != "refusal":
            raise no_part(part.type, f"{place}[{index}]")
        texts.append(part.text or part.refusal)
    return join_texts(texts)


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
    return mended(value) if isinstance(value, dict) and not too_deep(value) else text


def arguments_text(arguments: Json) -> str:
    """Arguments as harnesses get them in one string."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def told(asked: Asked, answer: Answer) -> Message:
    """The answer as this client may hear it: one who forbade tool calls hears them as text."""
    message = answer.message
    if asked.calls_allowed or not message.calls:
        return message
    texts = [f"{call.name}({arguments_text(call.arguments)})" for call in message.calls]
    return dataclasses.replace(message, text=join_texts([message.text, *texts]), calls=())


def free_text(call: ToolCall) -> str:
    """What the policy passed to a tool that takes one free text."""
    arguments = call.arguments
    text = arguments.get("input") if isinstance(arguments, dict) else None
    return text if isinstance(text, str) else arguments_text(arguments)


def seal(thinking: str) -> str:
    """Thinking as a text that clients pass on and need not understand."""
    return SEALED + base64.b64encode(thinking.encode()).decode()


def unseal(sealed: str, place: str) -> str:
    """The thinking that was sealed; none in a seal of somebody else's."""
    if not sealed.startswith(SEALED):
        return ""
    try:
        return base64.b64decode(sealed.removeprefix(SEALED), validate=True).decode()
    except ValueError as error:
        raise bad(f"wanted it as it was given; {error}", place) from error


def positive(limit: int | None, name: str) -> int | None:
    """A token limit. Raises Refusal for one that leaves no room for an answer."""
    if limit is not None and limit < 1:
        raise bad(f"wanted at least 1; found {limit}", name)
    return limit


def sse(data: Json, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


def no_part(kind: str, place: str) -> Refusal:
    """Parts and blocks that the policy cannot be shown."""
    if any(word in kind for word in MEDIA):
        return bad(f"wanted text; found {kind}; this policy reads text only", place)
    return bad(f"wanted text; found {kind}, which is not served", place)


def no_choice(place: str, found: str) -> Refusal:
    """A choice of tools that would force the policy's hand."""
    return bad(
        f"wanted auto or none; found {found}; the policy is not forced to call a tool", place
    )
