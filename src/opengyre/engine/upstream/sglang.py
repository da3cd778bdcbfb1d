"""SGLang's native API: POST /generate with input_ids, streamed.

Invariant: what is yielded is the server's own output_ids, each beside the log-probability that the
server names the same token for; an event that does not fit the ones before it is an error.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from opengyre.core.errors import EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, Sampling, TokenChunk
from opengyre.engine.upstream.base import (
    Facts,
    ServerLostError,
    ServerRefusedError,
    UpstreamCounts,
)
from opengyre.engine.upstream.versions import FIRST, VersionBook
from opengyre.engine.upstream.wire import Wire

SEED_BITS = 31
"""Of a seed: the server keeps seeds in 32-bit signed numbers on some paths."""
TOKENS_AN_EVENT = 8
"""The server repeats the whole answer in each event, so one a token would be quadratic; a cut loses
at most so many tokens, which are then drawn again."""
ABORT_S = 5.0
"""Seconds that closing waits for the aborts of cancelled requests."""
FINISHES = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}


class ModelInfo(Struct):
    """GET /model_info."""

    model_path: str
    """Changes when weights are loaded from another folder."""
    tokenizer_path: str = ""
    architectures: list[str] | None = None
    weight_version: str | None = None


class ServerInfo(Struct):
    """GET /server_info."""

    version: str = "?"
    context_length: int | None = None
    max_total_num_tokens: int | None = None
    max_req_input_len: int | None = None
    """A few tokens below context_length."""


class Finish(Struct):
    """Why a generation ended."""

    type: str
    message: str = ""
    status_code: int | None = None


class WeightSpan(Struct):
    """Output tokens [start, end) were computed by these weights."""

    version: str
    start: int
    end: int


class Meta(Struct):
    """meta_info of an event."""

    prompt_tokens: int
    completion_tokens: int
    finish_reason: Finish | None = None
    cached_tokens: int = 0
    weight_version: str | None = None
    weight_versions: list[WeightSpan] | None = None
    output_token_logprobs: list[tuple[float, int, str | None]] = []


class Event(Struct):
    """One event of a stream."""

    output_ids: list[int] = []
    meta_info: Meta | None = None
    error: Any = None


class Tokens(Struct):
    """POST /tokenize."""

    tokens: list[int]


@dataclass
class SGLangApi:
    """A server of SGLang."""

    wire: Wire
    versions: VersionBook
    hottest: float = math.inf
    _aborts: set["asyncio.Task[None]"] = field(default_factory=set)

    async def facts(self) -> Facts:
        """See ServerApi."""
        model = await self.wire.ask("GET", "/model_info", None, ModelInfo)
        server = await self.wire.ask("GET", "/server_info", None, ServerInfo)
        told = (server.context_length, server.max_total_num_tokens, server.max_req_input_len)
        limits = [limit for limit in told if limit]
        return Facts(
            software="SGLang",
            release=server.version,
            model=model.model_path,
            context_tokens=min(limits, default=None),
            identity=f"{model.tokenizer_path} {model.architectures}",
        )

    async def tokenize(self, text: str) -> list[int] | None:
        """See ServerApi."""
        body = {"model": "", "prompt": text, "add_special_tokens": False}
        try:
            return (await self.wire.ask("POST", "/tokenize", body, Tokens)).tokens
        except ServerRefusedError:
            return None  # older releases have no such route

    async def stream(
        self, request: GenerateRequest, attempt: str, counts: UpstreamCounts
    ) -> AsyncGenerator[TokenChunk, None]:
        """See ServerApi."""
        reading = Reading(request, self.versions, counts)
        over = False
        try:
            async with aclosing(self.wire.events("/generate", _body(request, attempt))) as events:
                async for raw in events:
                    event = self.wire.decode(raw, Event)
                    for chunk in reading.take(event):
                        over = over or chunk.finish is not None
                        yield chunk
        finally:
            if not over:
                self._abort(attempt)

    def _abort(self, attempt: str) -> None:
        """Told apart from the stream, so that a cancelled asker need not wait for it."""
        task = asyncio.ensure_future(self._tell_abort(attempt))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _tell_abort(self, attempt: str) -> None:
        try:
            await self.wire.ask("POST", "/abort_request", {"rid": attempt}, object)
        except EngineError:
            return  # out of reach; a server aborts what nobody reads by itself

    async def close(self) -> None:
        """See ServerApi."""
        if self._aborts:
            await asyncio.wait(self._aborts, timeout=ABORT_S)
        await self.wire.close()


class Reading:
    """One stream's events as chunks."""

    def __init__(
        self, request: GenerateRequest, versions: VersionBook, counts: UpstreamCounts
    ) -> None:
        self._request, self._versions, self._counts = request, versions, counts
        self._seen = 0
        self._label: str | None = None

    def take(self, event: Event) -> list[TokenChunk]:
        """What is new in it."""
        if event.error is not None or event.meta_info is None:
            raise _failed(event.error)
        meta = event.meta_info
        if self._seen == 0:
            self._check_prompt(meta)
        ids, logprobs = self._new(event.output_ids, meta)
        chunks = self._chunks(ids, logprobs, meta)
        self._seen += len(ids)
        if meta.finish_reason is not None:
            chunks.append(self._chunk([], [], 0, self._finish(meta.finish_reason)))
        return chunks

    def _check_prompt(self, meta: Meta) -> None:
        sent = len(self._request.prompt_ids)
        if meta.prompt_tokens != sent:
            raise ServerRefusedError(
                f"wanted the server to read the {sent} tokens that it was sent; found that it read "
                f"{meta.prompt_tokens}; start it without anything that changes prompts"
            )
        self._counts.cached_tokens += meta.cached_tokens if meta.completion_tokens else 0

    def _new(self, ids: list[int], meta: Meta) -> tuple[list[int], list[float]]:
        """Events hold the whole answer, or, under --incremental-streaming-output, what is new."""
        pairs = meta.output_token_logprobs
        if len(ids) == meta.completion_tokens:
            ids = ids[self._seen :]
        if len(pairs) == meta.completion_tokens:
            pairs = pairs[self._seen :]
        if self._seen + len(ids) != meta.completion_tokens or [p[1] for p in pairs] != ids:
            raise ServerRefusedError(
                f"wanted each new token with its log-probability; found {len(ids)} tokens and "
                f"{len(pairs)} log-probabilities after {self._seen} of {meta.completion_tokens}"
            )
        return ids, [pair[0] for pair in pairs]

    def _chunks(self, ids: list[int], logprobs: list[float], meta: Meta) -> list[TokenChunk]:
        """One for each weight version."""
        cuts = self._cuts(len(ids), meta)
        return [
            self._chunk(ids[start:end], logprobs[start:end], version)
            for start, end, version in cuts
        ]

    def _cuts(self, new: int, meta: Meta) -> list[tuple[int, int, int]]:
        """(start, end, version) over the new tokens.

        Only the last event says exactly which tokens are whose. Tokens of an event that comes after
        a change may be of either version: they are put down as the older one.
        """
        newest = meta.weight_version or FIRST
        label, self._label = self._label or newest, newest
        cuts, at = [], 0
        for span in meta.weight_versions or []:
            end = min(span.end - self._seen, new)
            if end > at:
                cuts.append((at, end, self._versions.number(span.version)))
                at = end
        if at < new:
            cuts.append((at, new, self._versions.number(label)))
        return cuts

    def _finish(self, finish: Finish) -> FinishReason:
        found = FINISHES.get(finish.type)
        if found is not None:
            return found
        message = f"the server ended the request by itself ({finish.type}): {finish.message}"
        if finish.status_code is not None and 400 <= finish.status_code < 500:
            raise ServerRefusedError(message)
        raise ServerLostError(message)

    def _chunk(
        self,
        ids: list[int],
        logprobs: list[float],
        version: int,
        finish: FinishReason | None = None,
    ) -> TokenChunk:
        return TokenChunk(
            request_id=self._request.request_id,
            token_ids=ids,
            logprobs=logprobs,
            version=version,
            finish=finish,
        )


def _body(request: GenerateRequest, attempt: str) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "rid": attempt,
        "input_ids": list(request.prompt_ids),
        "sampling_params": _sampling(sampling, request.first_index),
        "return_logprob": True,
        "logprob_start_len": -1,
        "return_text_in_logprobs": False,
        "stream": True,
    }


def _sampling(sampling: Sampling, first_index: int) -> dict[str, Any]:
    return {
        "max_new_tokens": sampling.max_new_tokens - first_index,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "stop_token_ids": sampling.stop_ids,
        # Drawn by (seed, position in the sequence): a continued answer keeps its seed.
        "sampling_seed": sampling.seed % (1 << SEED_BITS),
        "stream_interval": TOKENS_AN_EVENT,
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }


def _failed(error: Any) -> EngineError:
    message = error.get("message", error) if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    words = f"the server failed in the middle of an answer: {message}"
    if isinstance(code, int) and 400 <= code < 500:
        return ServerRefusedError(words)
    return ServerLostError(words)
