"""Sends an answer once it is recorded, and signs of life until then.

Invariant: nothing that was sampled leaves before the job is done, and an answer counts as
delivered only if the client was there until its last byte. A stream that has begun and cannot be
finished is cut, not ended: harnesses ask again after a cut and trust what is ended.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from opengyre.core.protocols import Clock
from opengyre.proxy.answers import Asked, Job
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.messages import Json
from opengyre.proxy.refusals import Kind, Refusal

STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
CLOSED = Refusal(Kind.NOT_FOUND, "the execution was closed while its call was being answered")
JSON = [(b"content-type", b"application/json")]


@dataclass(frozen=True)
class Delivery:
    """An ASGI response that waits for its job."""

    dialect: Dialect
    asked: Asked
    job: Job
    clock: Clock
    ping_s: float
    delivered: Callable[[], None]

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
        if error is not None:
            return await self._failed(send, error, opened=opened)
        if self.asked.stream:
            await self._stream(send, opened=opened)
        else:
            await send_json(send, 200, self.dialect.whole(self.asked, task.result()))
        return True

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
        await send({"type": "http.response.start", "status": 200, "headers": STREAM})
        await _part(send, self.dialect.opening(self.asked, self.job))

    async def _stream(self, send: Send, *, opened: bool) -> None:
        if not opened:
            await self._open(send)
        content = b"".join(self.dialect.events(self.asked, self.job.task.result()))
        await send({"type": "http.response.body", "body": content})

    async def _failed(self, send: Send, error: BaseException, *, opened: bool) -> bool:
        if not isinstance(error, Refusal):
            raise error
        if not opened:
            await send_json(send, error.kind.value, self.dialect.error(error))
        return False


async def send_json(send: Send, status: int, body: Json) -> None:
    """A whole JSON response."""
    content = json.dumps(body, ensure_ascii=False).encode()
    headers = [*JSON, (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _part(send: Send, content: bytes) -> None:
    await send({"type": "http.response.body", "body": content, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
