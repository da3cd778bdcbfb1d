"""Faults between the agent program and the proxy, on demand.

Invariant: a request that a fault answers never reaches the proxy; one that is cut reached it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opengyre.app.wall import WallClock

GENERATIONS = ("/v1/messages", "/v1/chat/completions", "/v1/responses")
"""Ends of paths whose POSTs count as model requests."""
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
"""What Anthropic calls them: Claude Code believes the body rather than the status."""
LINGER_S = 0.5
"""Programs look at a part only if they have read it before the connection is gone."""


@dataclass(frozen=True)
class Answer:
    """Requests [call, call + times) get this status instead of an answer."""

    call: int
    """From 1, retries included."""
    status: int
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """The answer to this request breaks off at the nth event that holds the marker."""

    call: int
    marker: str
    nth: int = 1
    where: str = "after"
    """after, before or inside that event."""
    linger_s: float = LINGER_S
    """Between the last part and the break."""


Fault = Answer | Cut


class CutConnectionError(Exception):
    """Makes the server close the connection without an ending."""


class Faults:
    """ASGI application in front of the proxy's."""

    def __init__(self, app: ASGIApp, faults: Sequence[Fault] = ()) -> None:
        self.app = app
        self.requests = 0
        """Model requests so far."""
        self.struck: list[Fault] = []
        """Faults that happened."""
        self._faults = faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        if not scope["path"].endswith(GENERATIONS):
            await self.app(scope, receive, send)
            return
        self.requests += 1
        fault = self._fault(self.requests)
        if isinstance(fault, Answer):
            self.struck.append(fault)
            await _refuse(fault, send)
        elif isinstance(fault, Cut):
            await self.app(scope, receive, _Cutting(fault, send, self.struck))
        else:
            await self.app(scope, receive, send)

    def _fault(self, number: int) -> Fault | None:
        for fault in self._faults:
            times = fault.times if isinstance(fault, Answer) else 1
            if fault.call <= number < fault.call + times:
                return fault
        return None


class _Cutting:
    """A Send that breaks off."""

    def __init__(self, cut: Cut, send: Send, struck: list[Fault]) -> None:
        self._cut, self._send, self._struck = cut, send, struck
        self._seen = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] != "http.response.body":
            await self._send(message)
            return
        kept = self._kept(message.get("body", b""))
        if kept is None:
            await self._send(message)
            return
        await self._send({"type": "http.response.body", "body": kept, "more_body": True})
        self._struck.append(self._cut)
        await WallClock().sleep(self._cut.linger_s)
        raise CutConnectionError(f"cut {self._cut.where} {self._cut.marker}")

    def _kept(self, body: bytes) -> bytes | None:
        """What still goes out, or None when the place is not in this part."""
        sent = b""
        for event in body.split(b"\n\n"):
            if not event:
                continue
            self._seen += self._cut.marker.encode() in event
            if self._seen == self._cut.nth:
                here = {
                    "before": b"",
                    "after": event + b"\n\n",
                    "inside": event[: len(event) // 2],
                }
                return sent + here[self._cut.where]
            sent += event + b"\n\n"
        return None


async def _refuse(fault: Answer, send: Send) -> None:
    error = {"type": KINDS[fault.status], "message": "no"}
    content = json.dumps({"type": "error", "error": error}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content))}
    pairs = [(k.encode(), v.encode()) for k, v in {**headers, **fault.headers}.items()]
    await send({"type": "http.response.start", "status": fault.status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
