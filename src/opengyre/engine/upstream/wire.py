"""HTTP to a model server: JSON questions and event streams, with a deadline on every wait.

Invariant: whatever goes wrong on the way is a ServerLostError, whatever the server declines is a
ServerRefusedError, and both say which server and what it said.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from opengyre.core.errors import UserError
from opengyre.engine.upstream.base import ServerLostError, ServerRefusedError

T = TypeVar("T")

TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a server that is busy, starting or broken for the moment."""
WORDS = 300
"""Characters of a server's own words that an error repeats."""
DONE = b"[DONE]"
"""Ends an event stream of either server."""
DATA = b"data:"


@dataclass(frozen=True)
class Deadlines:
    """Seconds that are waited for a server."""

    connect_s: float = 10.0
    """For a connection."""
    answer_s: float = 30.0
    """For the whole answer to a small question."""
    silence_s: float = 600.0
    """For the next piece of a stream: waiting in the server's queue and reading a long prompt
    take this long at most."""


class Wire:
    """One server's address."""

    def __init__(self, url: str, deadlines: Deadlines, key: str | None = None) -> None:
        self.url = checked_url(url)
        self._deadlines = deadlines
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, method: str, path: str, body: Any, kind: type[T]) -> T:
        """The decoded answer to a small question."""
        timeout = aiohttp.ClientTimeout(
            total=self._deadlines.answer_s, sock_connect=self._deadlines.connect_s
        )
        try:
            async with self._open().request(
                method, self.url + path, json=body, timeout=timeout, allow_redirects=False
            ) as response:
                await self._check(response)
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._lost(error) from error
        return self.decode(raw, kind)

    async def events(self, path: str, body: Any) -> AsyncGenerator[bytes, None]:
        """The data of each event until [DONE]. Raises ServerLostError when it is cut before."""
        timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self._deadlines.connect_s,
            sock_read=self._deadlines.silence_s,
        )
        try:
            async with self._open().post(
                self.url + path, json=body, timeout=timeout, allow_redirects=False
            ) as response:
                await self._check(response)
                async for line in _lines(response.content):
                    if line == DONE:
                        return
                    yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._lost(error) from error
        raise ServerLostError(f"{self.url} cut its answer short")

    def decode(self, raw: bytes, kind: type[T]) -> T:
        """Raises ServerRefusedError when the server speaks otherwise than measured."""
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            said = raw[:WORDS].decode(errors="replace")
            raise ServerRefusedError(
                f"wanted an answer that this version understands from {self.url}; found {error} "
                f"in {said!r}; use a release that docs/recording.md lists"
            ) from error

    async def close(self) -> None:
        """Idempotent."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                connector=aiohttp.TCPConnector(limit=0),  # each call of an agent holds one
                json_serialize=lambda value: msgspec.json.encode(value).decode(),
                trust_env=False,
            )
        return self._session

    async def _check(self, response: aiohttp.ClientResponse) -> None:
        if response.status == 200:
            return
        said = (await response.read())[: 4 * WORDS].decode(errors="replace")
        message = f"{self.url} answered {response.status}: {message_in(said)[:WORDS]}"
        if response.status in TRY_AGAIN:
            raise ServerLostError(message)
        raise ServerRefusedError(message)

    def _lost(self, error: Exception) -> ServerLostError:
        words = str(error) or "no answer in time"
        return ServerLostError(f"{self.url} is out of reach: {type(error).__name__}: {words}")


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Data lines of any length: servers repeat a whole answer in each event."""
    rest = bytearray()
    async for piece in content.iter_any():
        start = max(len(rest) - 1, 0)
        rest += piece
        while (end := rest.find(b"\n", start)) >= 0:
            line = bytes(rest[:end]).strip()
            del rest[: end + 1]
            start = 0
            if line.startswith(DATA):
                yield line[len(DATA) :].strip()


def message_in(said: str) -> str:
    """The message of an error body, in any of the shapes that servers use."""
    try:
        value = msgspec.json.decode(said)
    except (msgspec.MsgspecError, RecursionError):
        return said
    while isinstance(value, dict):
        value = next(
            (value[key] for key in ("error", "message", "detail", "errors") if key in value), said
        )
    return str(value)


def checked_url(url: str) -> str:
    """Without a closing slash or /v1. Raises UserError."""
    wanted = "a server's address such as http://127.0.0.1:30000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UserError(wanted, f"{url} ({error})", "mend --upstream") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise UserError(wanted, repr(url), "mend --upstream")
    return url.rstrip("/").removesuffix("/v1")
