"""Sends an answer once it is recorded, and signs of life until then.

Invariant: nothing that was sampled leaves before the job is done, and an answer counts as
delivered only if the client was there until its last byte. A stream that has begun and cannot be
finished is cut, not ended: harnesses ask again after a cut and trust what is ended.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from opengyre.core.protocols import Clock
from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.headers import Headers, answer_headers, refusal_headers
from opengyre.proxy.messages import Json
from opengyre.proxy.refusals import Kind, Refusal

STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
JSON = {"content-type": "application/json"}
CLOSED = Refusal(Kind.NOT_FOUND, "the execution was closed while its call was being answered")


@dataclass(frozen=True)
class Delivery:
    """An ASGI response that waits for its job."""

    dialect: Dialect
    asked: Asked
    job: Job
    clock: Clock
    ping_s: float
    request_id: str
    delivered: Callable[[], None]
    failed: Callable[[Exception], Refusal]
    """Told when an answer could not be put into words; what to tell the client instead."""

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        self.job.join()
        try:
            if await self._deliver(send, gone) and not gone.done():
                self.delivered()
        finally:
            gone.cancel()
            self.job.leave()

    async def _deliver(self, send: Send, gone: "asyncio.Future[None]") -> bool:
        """Whether everything was sent."""
        opened = await self._wait(send, gone)
        task = self.job.task
        if gone.done() or not task.done():
            return False
        error = CLOSED if task.cancelled() else task.exception()
        content = b""
        if error is None:
            try:
                content = self._content(task.result())
            except Exception as fault:  # noqa: BLE001 — ours: counted and answered, never silent
                error = self.failed(fault)
        if error is not None:
            return await self._failed(send, error, opened=opened)
        if not self.asked.stream:
            await _send_json(send, 200, self._headers(), content)
            return True
        if not opened:
            await self._open(send)
        await send({"type": "http.response.body", "body": content})
        return True

    def _content(self, answer: Answer) -> bytes:
        if self.asked.stream:
            return b"".join(self.dialect.events(self.asked, answer))
        return msgspec.json.encode(self.dialect.whole(self.asked, answer))

    async def _wait(self, send: Send, gone: "asyncio.Future[None]") -> bool:
        """Until the job is over or the client gone; whether a stream was begun meanwhile."""
        opened = False
        while not self.job.task.done() and not gone.done():
            timer = asyncio.ensure_future(self.clock.sleep(self.ping_s))
            awaited: list[asyncio.Future[Any]] = [self.job.task, gone, timer]
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if timer.done() and self.asked.stream and not self.job.task.done():
                if not opened:
                    await self._open(send)
                await _part(send, self.dialect.ping())
                opened = True
            timer.cancel()
        return opened

    async def _open(self, send: Send) -> None:
        await _start(send, 200, {**STREAM, **self._headers()})
        await _part(send, self.dialect.opening(self.asked, self.job))

    async def _failed(self, send: Send, error: BaseException, *, opened: bool) -> bool:
        if not isinstance(error, Refusal):
            raise error
        if not opened:
            await send_refusal(send, self.dialect, self.request_id, error)
        return False

    def _headers(self) -> Headers:
        name = self.dialect.request_id_header
        return answer_headers(name, self.request_id, self.asked.not_applied)


async def send_refusal(send: Send, dialect: Dialect, request_id: str, refusal: Refusal) -> None:
    """A refusal in the words of the dialect."""
    headers = refusal_headers(dialect.request_id_header, request_id, refusal)
    body = dialect.error(refusal, request_id)
    await send_json(send, dialect.status(refusal), headers, body)


async def send_json(send: Send, status: int, headers: Headers, body: Json) -> None:
    """A whole JSON response."""
    await _send_json(send, status, headers, msgspec.json.encode(body))


async def _send_json(send: Send, status: int, headers: Headers, content: bytes) -> None:
    await _start(send, status, {**JSON, "content-length": str(len(content)), **headers})
    await send({"type": "http.response.body", "body": content})


async def _start(send: Send, status: int, headers: Headers) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _part(send: Send, content: bytes) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
