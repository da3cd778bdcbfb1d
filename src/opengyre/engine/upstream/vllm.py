"""vLLM's OpenAI-style API: POST /v1/completions with a token-id prompt, streamed.

Invariant: the server repeats the prompt's ids and they are the ones sent; every token comes with its
id and its log-probability. Closing a stream closes its connection, which aborts it at the server.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from opengyre.core.errors import EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.engine.upstream.base import (
    Facts,
    ServerLostError,
    ServerRefusedError,
    UpstreamCounts,
)
from opengyre.engine.upstream.versions import FIRST, VersionBook
from opengyre.engine.upstream.wire import Wire, message_in

GOLDEN = 0x9E3779B97F4A7C15
"""Spreads seeds (2^64 divided by the golden ratio): the server's draws start anew with each
request, so an answer that goes on needs other draws than those it began with."""
SEED_MASK = (1 << 62) - 1
"""Seeds are signed 64-bit numbers there."""
FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class Model(Struct):
    """One of GET /v1/models."""

    id: str
    max_model_len: int | None = None
    root: str | None = None
    owned_by: str = ""


class Models(Struct):
    """GET /v1/models."""

    data: list[Model]


class Release(Struct):
    """GET /version."""

    version: str


class Logprobs(Struct):
    """Beside the tokens of a choice."""

    token_logprobs: list[float | None]


class Choice(Struct):
    """The one answer."""

    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None


class Details(Struct):
    """Of usage."""

    cached_tokens: int | None = None


class Usage(Struct):
    """In the last event."""

    prompt_tokens_details: Details | None = None


class Event(Struct):
    """One event of a stream."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


class Tokens(Struct):
    """POST /tokenize."""

    tokens: list[int]


@dataclass
class VllmApi:
    """A server of vLLM."""

    wire: Wire
    versions: VersionBook
    model: str = ""
    """The name it serves its model under; known after facts()."""
    hottest: float = 2.0

    async def facts(self) -> Facts:
        """See ServerApi."""
        release = await self.wire.ask("GET", "/version", None, Release)
        models = (await self.wire.ask("GET", "/v1/models", None, Models)).data
        if not models:
            raise ServerRefusedError(f"{self.wire.url} serves no model")
        self.model = models[0].id
        return Facts(
            software="vLLM",
            release=release.version,
            model=models[0].root or models[0].id,
            context_tokens=models[0].max_model_len,
            identity=f"{models[0].root} {models[0].id}",
        )

    async def tokenize(self, text: str) -> list[int] | None:
        """See ServerApi."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        try:
            return (await self.wire.ask("POST", "/tokenize", body, Tokens)).tokens
        except ServerRefusedError:
            return None

    async def stream(
        self, request: GenerateRequest, attempt: str, counts: UpstreamCounts
    ) -> AsyncGenerator[TokenChunk, None]:
        """See ServerApi."""
        reading = Reading(request, self.versions, counts)
        body = _body(request, attempt, self.model)
        async with aclosing(self.wire.events("/v1/completions", body)) as events:
            async for raw in events:
                chunk = reading.take(self.wire.decode(raw, Event))
                if chunk is not None:
                    yield chunk
        if reading.finish is None:
            raise ServerLostError(f"{self.wire.url} ended an answer without a finish")
        yield reading.chunk([], [], reading.finish)

    async def close(self) -> None:
        """See ServerApi."""
        await self.wire.close()


class Reading:
    """One stream's events as chunks."""

    def __init__(
        self, request: GenerateRequest, versions: VersionBook, counts: UpstreamCounts
    ) -> None:
        self._request, self._counts = request, counts
        self._version = versions.number(FIRST)  # the server does not tell any
        self.finish: FinishReason | None = None
        self._checked = False

    def take(self, event: Event) -> TokenChunk | None:
        """The new tokens, if there are any; the finish is kept until usage was read."""
        if event.error is not None:
            raise _failed(event.error)
        if event.usage is not None and event.usage.prompt_tokens_details is not None:
            self._counts.cached_tokens += event.usage.prompt_tokens_details.cached_tokens or 0
        if not event.choices:
            return None
        choice = event.choices[0]
        self._check_prompt(choice)
        if choice.finish_reason is not None:
            self.finish = _finish(choice.finish_reason)
        ids = choice.token_ids or []
        return self.chunk(ids, _logprobs(choice, ids)) if ids else None

    def _check_prompt(self, choice: Choice) -> None:
        if self._checked:
            return
        if choice.prompt_token_ids != self._request.prompt_ids:
            raise ServerRefusedError(
                "wanted the server to repeat the prompt's own token ids; found "
                + ("none" if choice.prompt_token_ids is None else "other ones")
                + "; use a release that has return_token_ids, and nothing that changes prompts"
            )
        self._checked = True

    def chunk(
        self, ids: list[int], logprobs: list[float], finish: FinishReason | None = None
    ) -> TokenChunk:
        """As the proxy wants it."""
        return TokenChunk(
            request_id=self._request.request_id,
            token_ids=ids,
            logprobs=logprobs,
            version=self._version,
            finish=finish,
        )


def _logprobs(choice: Choice, ids: list[int]) -> list[float]:
    given = [] if choice.logprobs is None else choice.logprobs.token_logprobs
    found = [value for value in given if value is not None]
    if len(found) != len(ids):
        raise ServerRefusedError(
            f"wanted a log-probability for each of {len(ids)} tokens; found {len(found)}"
        )
    return found


def _finish(reason: str) -> FinishReason:
    if reason not in FINISHES:
        raise ServerLostError(f"the server ended the request by itself ({reason})")
    return FINISHES[reason]


def _body(request: GenerateRequest, attempt: str, model: str) -> dict[str, Any]:
    sampling = request.sampling
    seed = (sampling.seed + request.first_index * GOLDEN) & SEED_MASK
    return {
        "model": model,
        "request_id": attempt,
        "prompt": list(request.prompt_ids),
        "max_tokens": sampling.max_new_tokens - request.first_index,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "seed": seed,
        "stop_token_ids": sampling.stop_ids,
        "logprobs": 0,
        "return_token_ids": True,
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _failed(error: Any) -> EngineError:
    code = error.get("code") if isinstance(error, dict) else None
    said = error.get("message", error) if isinstance(error, dict) else message_in(str(error))
    words = f"the server failed in the middle of an answer: {said}"
    if isinstance(code, int) and 400 <= code < 500:
        return ServerRefusedError(words)
    return ServerLostError(words)
