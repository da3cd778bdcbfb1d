"""The routes: who calls, in which dialect, and what is answered when nothing can be.

Invariant: every request is tied to one execution by its path and by its key, before its body is
read; every response, refusals included, is in the words of the dialect that was asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from opengyre.core.protocols import Clock, Generator, IdSource, Recorder
from opengyre.proxy.bodies import read_body
from opengyre.proxy.delivery import Delivery
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.executions import Door, Executions
from opengyre.proxy.families.base import Family
from opengyre.proxy.history import UnreadError
from opengyre.proxy.messages import Json
from opengyre.proxy.reading import Reading
from opengyre.proxy.refusals import Kind, Refusal
from opengyre.proxy.session import Classify, Limits, Origin, Sessions, failure
from opengyre.proxy.turns import OneByOne
from opengyre.proxy.voices import Voices
from opengyre.tree.roles import classify as classify_by_marks

NOBODY = 499
"""The client left before its request was read; nobody sees this."""

SHORT = 16 * 1024
"""Bytes that are read and encoded in the event loop: about 4,000 tokens, some twenty milliseconds."""

MODELS = ("policy",)
"""The one model; any other name is served as well."""
UNROUTED = {404: Kind.NOT_FOUND, 405: Kind.WRONG_METHOD}
"""What the router says of paths and methods that it does not know."""

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def build_app(  # noqa: PLR0913 — the room's wiring: everything it needs from outside
    executions: Executions,
    generator: Generator,
    recorder: Recorder,
    family: Family,
    limits: Limits,
    clock: Clock,
    ids: IdSource,
    *,
    classify: Classify = classify_by_marks,
) -> Starlette:
    """The door as an ASGI application; its paths start with /run/<execution id>.

    What another process left of the executions goes on (restore.py); call it in the event loop.
    """
    sessions = Sessions(
        generator, recorder, family, limits=limits, clock=clock, ids=ids, classify=classify
    )
    sessions.take_over(executions)
    voices = Voices(ids)
    anthropic, chat, responses = voices.anthropic, voices.chat, voices.responses
    edge = Edge(executions, sessions, ids, voices)
    run = "/run/{execution_id}"
    return Starlette(
        routes=[
            Route(f"{run}/v1/messages", edge.generation(anthropic), methods=["POST"]),
            Route(f"{run}/v1/messages/count_tokens", edge.counting(anthropic), methods=["POST"]),
            Route(f"{run}/v1/chat/completions", edge.generation(chat), methods=["POST"]),
            Route(f"{run}/v1/responses", edge.generation(responses), methods=["POST"]),
            Route(f"{run}/v1/responses/input_tokens", edge.counting(responses), methods=["POST"]),
            Route(f"{run}/v1/models", edge.models, methods=["GET"]),
            Route(f"{run}/v1/models/{{name:path}}", edge.model, methods=["GET"]),
            Route(run, edge.probe, methods=["GET"]),
            Route(f"{run}/", edge.probe, methods=["GET"]),
        ],
        middleware=[Middleware(OneByOne, sessions.turns)],
        exception_handlers={HTTPException: edge.unknown, Exception: edge.broken},
    )


class Edge:
    """Requests in, deliveries or refusals out."""

    def __init__(
        self, executions: Executions, sessions: Sessions, ids: IdSource, voices: Voices
    ) -> None:
        self._executions, self._sessions = executions, sessions
        self._ids, self._voices = ids, voices
        self._beside = ThreadPoolExecutor(1, "reading")
        """One thread: it shares the interpreter with the event loop, and more would starve that."""
        self._apart = ThreadPoolExecutor(1, "huge words")
        """For what cannot be done in pieces; it leaves the interpreter to others meanwhile."""

    def generation(self, dialect: Dialect) -> Endpoint:
        """Endpoint that answers with a model's reply."""

        async def endpoint(request: Request) -> ASGIApp:
            try:
                door = self._door(request)
                return await self._answer(dialect, door, request)
            except Refusal as refusal:
                return self._refuse(dialect, request, refusal)
            except ClientDisconnect:
                return Response(status_code=NOBODY)
            except Exception as error:  # noqa: BLE001 — ours: counted and answered, never silent
                return self._refuse(dialect, request, failure(error))

        return endpoint

    def counting(self, dialect: Dialect) -> Endpoint:
        """Endpoint that answers with the number of prompt tokens."""

        async def endpoint(request: Request) -> ASGIApp:
            try:
                door = self._door(request)
                reading = await self._read(dialect, door, request, None)
                counted = await self._with(
                    door, reading, None, lambda: self._sessions.count(door, reading.asked)
                )
            except Refusal as refusal:
                return self._refuse(dialect, request, refusal)
            except ClientDisconnect:
                return Response(status_code=NOBODY)
            except Exception as error:  # noqa: BLE001 — ours: counted and answered, never silent
                return self._refuse(dialect, request, failure(error))
            return self._voices.tell(dialect, dialect.counted(counted), reading.asked.not_applied)

        return endpoint

    async def models(self, request: Request) -> Response:
        """One model, whose name is as good as any other."""
        return self._plain(request, lambda dialect: dialect.models(MODELS))

    async def model(self, request: Request) -> Response:
        """Any name is a model."""
        return self._plain(request, lambda dialect: dialect.model(request.path_params["name"]))

    async def probe(self, request: Request) -> Response:
        """Whether this execution is open."""
        return self._plain(request, lambda _dialect: {"ok": True})

    async def unknown(self, request: Request, error: Exception) -> Response:
        """Paths and methods that the router does not know, in words that name them."""
        assert isinstance(error, HTTPException)
        kind = UNROUTED.get(error.status_code, Kind.BAD_REQUEST)
        message = f"{request.method} {request.url.path} is not served: {error.detail}"
        if not request.url.path.startswith("/run/"):
            message += "; a base URL ends in /run/NAME"
        return self._voices.refuse(request, Refusal(kind, message))

    async def broken(self, request: Request, error: Exception) -> Response:
        """A bug of ours; the server logs it."""
        refusal = Refusal(Kind.FAILED, f"the proxy is at fault: {type(error).__name__}")
        return self._voices.refuse(request, refusal)

    def _plain(self, request: Request, body: Callable[[Dialect], dict[str, Json]]) -> Response:
        dialect = self._voices.of(request)
        try:
            self._door(request)
        except Refusal as refusal:
            return self._voices.say(dialect, refusal)
        return self._voices.tell(dialect, body(dialect))

    async def _answer(self, dialect: Dialect, door: Door, request: Request) -> ASGIApp:
        context = self._sessions.limits.context_tokens
        reading = await self._read(dialect, door, request, context)
        return await self._with(
            door, reading, context, lambda: self._begin(dialect, door, request, reading)
        )

    async def _with(
        self, door: Door, reading: Reading, context: int | None, do: Callable[[], T]
    ) -> T:
        """What is done with it in a turn of the event loop; afterwards its body is let go."""
        try:
            try:
                async with self._sessions.turns.one():
                    return do()
            except UnreadError:
                await self._look_ahead(door, reading, context)
            async with self._sessions.turns.one():
                return do()
        finally:
            door.history.forget(reading.asked.conversation)
            reading.let_go()

    def _begin(self, dialect: Dialect, door: Door, request: Request, reading: Reading) -> Delivery:
        origin = Origin(
            dialect=dialect.name,
            tool_prefix=dialect.tool_prefix,
            digest=reading.digest,
            headers=_headers(request),
        )
        job = self._sessions.answer(door, reading.asked, origin)
        return Delivery(
            dialect=dialect,
            asked=reading.asked,
            job=job,
            clock=self._sessions.clock,
            ping_s=self._sessions.limits.ping_s,
            request_id=self._ids.new("req"),
            delivered=lambda: self._sessions.delivered(door, job),
            failed=lambda error: self._sessions.fault(door, error),
        )

    async def _read(
        self, dialect: Dialect, door: Door, request: Request, context: int | None
    ) -> Reading:
        """The request; what takes long to read or to encode is done beside the event loop."""
        body = await read_body(request, self._sessions.limits.max_body_bytes)
        headers = _headers(request)
        async with self._sessions.turns.one():
            found = door.reader.lines.find(body)
            if len(body) - (found.cut.end if found else 0) <= SHORT:
                reading = door.reader.read_rest(dialect, body, headers, found)
                if reading is not None:
                    return reading
        loop = asyncio.get_running_loop()
        reading = await loop.run_in_executor(
            self._beside, door.reader.read, dialect, body, headers, found
        )
        try:
            await self._look_ahead(door, reading, context)
        except Refusal:
            self._sessions.notice(door, reading.asked, headers)
            raise
        return reading

    async def _look_ahead(self, door: Door, reading: Reading, context: int | None) -> None:
        """Encode it beside the event loop; between two pieces others have the thread."""
        loop = asyncio.get_running_loop()
        pieces = door.history.looking_ahead(reading.asked.conversation, context)
        takes_long: bool | None = False
        while takes_long is not None:
            thread = self._apart if takes_long else self._beside
            takes_long = await loop.run_in_executor(thread, next, pieces, None)

    def _door(self, request: Request) -> Door:
        return self._executions.find(
            request.path_params["execution_id"], given_key(request.headers)
        )

    def _refuse(self, dialect: Dialect, request: Request, refusal: Refusal) -> Response:
        self._executions.refused(request.path_params["execution_id"], refusal)
        return self._voices.say(dialect, refusal)


def _headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def given_key(headers: Headers) -> str:
    """The key that a request brings, as either vendor's clients send it; empty without one."""
    given = headers.get("x-api-key")
    if given is not None:
        return given
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
