"""The routes: who calls, in which dialect, and what is answered when nothing can be.

Invariant: every request is tied to one execution by its path and by its key, before its body is
read; every response, refusals included, is in the words of the dialect that was asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from opengyre.core.protocols import Clock, Generator, IdSource, Recorder
from opengyre.proxy.bodies import read_body
from opengyre.proxy.delivery import Delivery
from opengyre.proxy.dialects.anthropic import AnthropicDialect
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.dialects.chat import ChatDialect
from opengyre.proxy.dialects.responses import ResponsesDialect
from opengyre.proxy.executions import Door, Executions
from opengyre.proxy.families.base import Family
from opengyre.proxy.reading import Reading
from opengyre.proxy.refusals import Refusal
from opengyre.proxy.session import Classify, Limits, Origin, Sessions
from opengyre.tree.roles import classify as classify_by_marks

SHORT = 32 * 1024
"""Bytes that are read and encoded in the event loop: about 8,000 tokens, tens of milliseconds."""

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
    """The door as an ASGI application; its paths start with /run/<execution id>."""
    sessions = Sessions(
        generator, recorder, family, limits=limits, clock=clock, ids=ids, classify=classify
    )
    anthropic, chat, responses = AnthropicDialect(), ChatDialect(), ResponsesDialect()
    edge = Edge(executions, sessions)
    run = "/run/{execution_id}"
    return Starlette(
        routes=[
            Route(f"{run}/v1/messages", edge.generation(anthropic), methods=["POST"]),
            Route(f"{run}/v1/messages/count_tokens", edge.counting(anthropic), methods=["POST"]),
            Route(f"{run}/v1/chat/completions", edge.generation(chat), methods=["POST"]),
            Route(f"{run}/v1/responses", edge.generation(responses), methods=["POST"]),
            Route(f"{run}/v1/models", edge.models, methods=["GET"]),
            Route(run, edge.probe, methods=["GET"]),
            Route(f"{run}/", edge.probe, methods=["GET"]),
        ],
        exception_handlers={HTTPException: _as_json},
    )


class Edge:
    """Requests in, deliveries or refusals out."""

    def __init__(self, executions: Executions, sessions: Sessions) -> None:
        self._executions, self._sessions = executions, sessions
        self._beside = ThreadPoolExecutor(1, "reading")
        """One thread: it shares the interpreter with the event loop, and more would starve that."""

    def generation(self, dialect: Dialect) -> Endpoint:
        """Endpoint that answers with a model's reply."""

        async def endpoint(request: Request) -> ASGIApp:
            try:
                door = self._door(request)
                return await self._answer(dialect, door, request)
            except Refusal as refusal:
                return self._refuse(dialect, request, refusal)

        return endpoint

    def counting(self, dialect: Dialect) -> Endpoint:
        """Endpoint that answers with the number of prompt tokens."""

        async def endpoint(request: Request) -> ASGIApp:
            try:
                door = self._door(request)
                reading = await self._read(dialect, door, request)
            except Refusal as refusal:
                return self._refuse(dialect, request, refusal)
            return JSONResponse({"input_tokens": self._sessions.count(door, reading.asked)})

        return endpoint

    async def models(self, request: Request) -> Response:
        """One model, whose name is as good as any other."""
        self._door_or_404(request)
        model = {"id": "policy", "object": "model", "created": 0, "owned_by": "opengyre"}
        return JSONResponse({"object": "list", "data": [model]})

    async def probe(self, request: Request) -> Response:
        """Whether this execution is open."""
        self._door_or_404(request)
        return JSONResponse({"ok": True})

    async def _answer(self, dialect: Dialect, door: Door, request: Request) -> ASGIApp:
        reading = await self._read(dialect, door, request)
        origin = Origin(
            dialect=dialect.name,
            tool_prefix=dialect.tool_prefix,
            digest=reading.digest,
            headers=_headers(request),
        )
        try:
            job = self._sessions.answer(door, reading.asked, origin)
        finally:
            door.history.forget(reading.asked.conversation)
            reading.let_go()
        return Delivery(
            dialect=dialect,
            asked=reading.asked,
            job=job,
            clock=self._sessions.clock,
            ping_s=self._sessions.limits.ping_s,
            delivered=lambda: self._sessions.delivered(door, origin.digest),
        )

    async def _read(self, dialect: Dialect, door: Door, request: Request) -> Reading:
        """The request; what takes long to read or to encode is done beside the event loop."""
        body = await read_body(request, self._sessions.limits.max_body_bytes)
        found = door.reader.lines.find(body)
        headers = _headers(request)

        def read() -> Reading:
            return door.reader.read(dialect, body, headers, found)

        def read_and_encode() -> Reading:
            reading = read()
            door.history.look_ahead(reading.asked.conversation)
            return reading

        if len(body) - (found.cut.end if found else 0) <= SHORT:
            return read()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._beside, read_and_encode)

    def _door(self, request: Request) -> Door:
        return self._executions.find(request.path_params["execution_id"], _key(request))

    def _door_or_404(self, request: Request) -> Door:
        try:
            return self._door(request)
        except Refusal as refusal:
            raise HTTPException(refusal.kind.value, refusal.message) from refusal

    def _refuse(self, dialect: Dialect, request: Request, refusal: Refusal) -> Response:
        self._executions.refused(request.path_params["execution_id"], refusal)
        return JSONResponse(dialect.error(refusal), status_code=refusal.kind.value)


def _headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}


def _key(request: Request) -> str:
    given = request.headers.get("x-api-key")
    if given is not None:
        return given
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _as_json(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, in words that name them."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse({"error": {"message": message}}, status_code=error.status_code)
