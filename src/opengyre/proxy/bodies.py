"""Request bodies: read within a limit, decoded, and told apart from their retries.

Invariant: two bodies that mean the same call give equal digests, whatever the order of their keys.
"""

import hashlib
import json

import msgspec
from starlette.requests import Request

from opengyre.proxy.messages import DEEPEST, Json, canonical_json, mended, too_deep
from opengyre.proxy.refusals import Kind, Refusal, bad

CONVERSATION_HEADERS = (
    "x-claude-code-agent-id",
    "thread-id",
    "x-session-id",
)
"""Tell parallel conversations of one execution apart when they ask the same thing."""


async def read_body(request: Request, limit: int) -> bytes:
    """The bytes that were sent. Raises Refusal: 413 past the limit."""
    packed = request.headers.get("content-encoding", "identity")
    if packed != "identity":
        raise bad(f"wanted a body that is not compressed; found {packed}", "content-encoding")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def decode(raw: bytes) -> dict[str, Json]:
    """A JSON object; halves of surrogate pairs, which some programs send, become U+FFFD."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.MsgspecError:
        value = _decode_leniently(raw)
    except RecursionError as error:
        raise _nested() from error
    if not isinstance(value, dict):
        raise bad(f"wanted a JSON object as the body; found {type(value).__name__}")
    if too_deep(value):
        raise _nested()
    return value


def _decode_leniently(raw: bytes) -> Json:
    try:
        value: Json = json.loads(raw.decode("utf-8", errors="replace"), parse_constant=_refuse)
    except RecursionError as error:
        raise _nested() from error
    except ValueError as error:
        raise bad(f"wanted a JSON object as the body; {error}") from error
    if too_deep(value):
        raise _nested()
    return mended(value)


def _nested() -> Refusal:
    return bad(f"wanted JSON of at most {DEEPEST} levels as the body; found it nested deeper")


def _refuse(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def digest(
    dialect: str,
    body: dict[str, Json],
    ignored: frozenset[str],
    headers: dict[str, str],
    chain: bytes = b"",
) -> bytes:
    """What retries of one call have in common and different calls do not.

    chain stands for what is ignored here because it was digested piece by piece.
    """
    kept: Json = {key: value for key, value in body.items() if key not in ignored}
    who: list[Json] = [headers.get(name, "") for name in CONVERSATION_HEADERS]
    text = canonical_json([dialect, who, kept])
    return hashlib.blake2b(text.encode() + chain, digest_size=16).digest()


def _too_large(limit: int) -> Refusal:
    return Refusal(Kind.TOO_LARGE, f"wanted a body of at most {limit} bytes; found a longer one")
