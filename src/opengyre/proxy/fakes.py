"""A generator that says what it is told, through the real tokeniser.

Invariant: like an engine, it never gives more than max_new_tokens and ends with exactly one finish.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import msgspec

from opengyre.core.errors import EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.proxy.families.base import Family

Line = str | list[int] | EngineError
"""Text (a stop token is added), exact tokens (none is added), or a failure."""
LOGPROB = -0.25
"""Any finite number below zero."""


class ScriptedGenerator:
    """Says its lines in order, or what a function makes of each request.

    A function gets a request that goes on (first_index > 0) as it was asked for first.
    """

    def __init__(
        self,
        family: Family,
        script: Iterable[Line] | Callable[[GenerateRequest], Line],
        *,
        chunk_tokens: int = 4,
        version: int = 0,
        cells: Sequence[int] = (),
    ) -> None:
        """cells: that every request is given to: the i-th with its i-th chunk, as if it moved then."""
        self._family = family
        self._script = script if callable(script) else _reader(list(script))
        self._chunk_tokens = chunk_tokens
        self._version = version
        self._cells = cells
        self.requests: list[GenerateRequest] = []
        self.cancelled: list[str] = []
        """Ids of requests whose iterator was closed before its finish."""
        self.go = asyncio.Event()
        """Cleared: everybody waits before the end."""
        self.go.set()
        self.waiting = asyncio.Event()
        """Set once a request waits for go."""

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """See core.protocols.Generator."""
        self.requests.append(request)
        line = self._script(first_asked(request))
        if isinstance(line, EngineError):
            raise line
        done = False
        try:
            for chunk in self._chunks(request, self._tokens(line)):
                if chunk.finish is not None:
                    await self._pause()
                    done = True
                yield chunk
        finally:
            if not done:
                self.cancelled.append(request.request_id)

    async def _pause(self) -> None:
        if not self.go.is_set():
            self.waiting.set()
        await self.go.wait()

    def _tokens(self, line: str | list[int]) -> list[int]:
        if isinstance(line, str):
            return [*self._family.encode(line), self._family.stop_ids[0]]
        return line

    def _chunks(self, request: GenerateRequest, ids: list[int]) -> list[TokenChunk]:
        cut = ids[: request.sampling.max_new_tokens]
        stopped = bool(cut) and cut[-1] in request.sampling.stop_ids
        pieces = [
            cut[start : start + self._chunk_tokens]
            for start in range(request.first_index, len(cut), self._chunk_tokens)
        ]
        chunks = [
            *(self._chunk(request, piece, None) for piece in pieces),
            self._chunk(request, [], FinishReason.STOP if stopped else FinishReason.LENGTH),
        ]
        return [
            msgspec.structs.replace(chunk, cells=list(self._cells[place : place + 1]))
            for place, chunk in enumerate(chunks)
        ]

    def _chunk(
        self, request: GenerateRequest, ids: list[int], finish: FinishReason | None
    ) -> TokenChunk:
        return TokenChunk(
            request_id=request.request_id,
            token_ids=ids,
            logprobs=[LOGPROB] * len(ids),
            version=self._version,
            finish=finish,
        )


def first_asked(request: GenerateRequest) -> GenerateRequest:
    """The request before any of its answer was there."""
    prompt = request.prompt_ids[: len(request.prompt_ids) - request.first_index]
    return msgspec.structs.replace(request, prompt_ids=prompt, first_index=0)


def _reader(lines: list[Line]) -> Callable[[GenerateRequest], Line]:
    def read(request: GenerateRequest) -> Line:
        if not lines:
            raise EngineError(f"the script has no line for {request.request_id}")
        return lines.pop(0)

    return read
