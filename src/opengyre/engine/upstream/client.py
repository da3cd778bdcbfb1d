"""A model server as a Generator: what is lost on the way is asked for again, from where it broke off.

Invariant: every token that was yielded is at the end of the next attempt's prompt, so a continued
answer repeats and loses nothing; a server that comes back with another model is never gone on with.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from opengyre.core.errors import EngineError
from opengyre.core.protocols import Clock, IdSource
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.engine.upstream.base import (
    Facts,
    ServerApi,
    ServerLostError,
    ServerRefusedError,
    UpstreamCounts,
)

ROUNDING = 1e-3
"""Above 0, where servers compute a log-probability in half precision."""


@dataclass(frozen=True)
class Patience:
    """How long a lost server is waited for."""

    first_s: float = 0.25
    """Before the first new attempt; doubled each time."""
    longest_s: float = 8.0
    """Between two attempts."""
    total_s: float = 300.0
    """Without a single new token: then the call fails. Harnesses were seen to wait this long."""


class Upstream:
    """Implements Generator over any number of requests at once."""

    def __init__(
        self,
        api: ServerApi,
        facts: Facts,
        clock: Clock,
        ids: IdSource,
        *,
        patience: Patience,
        rows: int,
    ) -> None:
        """rows: of the model's embedding; a prompt with a token beyond them is never sent."""
        self.facts = facts
        self.counts = UpstreamCounts()
        self.trouble = ""
        """What the server's absence is due to; empty while it answers."""
        self._api, self._clock, self._ids = api, clock, ids
        self._patience, self._rows = patience, rows

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """See core.protocols.Generator."""
        check_whole_distribution(request)
        self._check_rows(request)
        counts = self.counts
        counts.requests += 1
        counts.in_flight += 1
        finished = False
        try:
            async with aclosing(self._persist(request)) as chunks:
                async for chunk in chunks:
                    counts.tokens += len(chunk.token_ids)
                    finished = chunk.finish is not None
                    counts.answered += finished
                    yield chunk
        except EngineError:
            counts.failed += 1
            finished = True
            raise
        finally:
            counts.in_flight -= 1
            counts.cancelled += not finished

    def _check_rows(self, request: GenerateRequest) -> None:
        """A token without a row was seen to kill the scheduler of a server."""
        largest = max(request.prompt_ids, default=-1)
        if not 0 <= largest < self._rows:
            raise ServerRefusedError(
                f"wanted a prompt of token ids below {self._rows}; found {largest}; use the "
                "tokenizer that the model was made with"
            )

    def _check_answer(self, chunk: TokenChunk, room: int) -> None:
        """What no model can have sampled would be recorded for ever."""
        odd = [token for token in chunk.token_ids if not 0 <= token < self._rows]
        unlikely = [logprob for logprob in chunk.logprobs if not logprob <= ROUNDING]
        if odd or unlikely or len(chunk.token_ids) > room:
            found = f"{odd[:3]} and {unlikely[:3]} in a piece of {len(chunk.token_ids)}"
            raise ServerRefusedError(
                f"wanted at most {room} tokens below {self._rows} with log-probabilities of at most "
                f"0; found {found}; see what is in front of the server"
            )

    async def _persist(self, request: GenerateRequest) -> AsyncGenerator[TokenChunk, None]:
        got: list[int] = []
        outage = Outage(self._patience, self._clock)
        while not is_whole(request, got):
            try:
                async with aclosing(self._attempt(request, got)) as chunks:
                    async for chunk in chunks:
                        outage.over(progress=bool(chunk.token_ids))
                        self.trouble = ""
                        yield chunk
                return
            except ServerLostError as error:
                self.counts.losses += 1
                self.trouble = str(error)
                await outage.wait(error)
                await self._recognise(outage)
        yield _end(request, got)  # all tokens were there, only the finish was lost

    async def _attempt(
        self, whole: GenerateRequest, got: list[int]
    ) -> AsyncGenerator[TokenChunk, None]:
        """Adds to `got`; returns after a finish. Raises ServerLostError when none came."""
        request, continued = remaining(whole, got), bool(got)
        self.counts.prompt_tokens += len(request.prompt_ids)
        self.counts.continued += continued
        attempt = self._ids.new(request.request_id)
        async with aclosing(self._api.stream(request, attempt, self.counts)) as chunks:
            async for chunk in chunks:
                self._check_answer(chunk, request.sampling.max_new_tokens - request.first_index)
                got += chunk.token_ids
                yield msgspec.structs.replace(chunk, moves_recomputed=int(continued))
                continued = False
                if chunk.finish is not None:
                    return
        raise ServerLostError("the server ended an answer without a finish")

    async def _recognise(self, outage: "Outage") -> None:
        """Return once the server answers again. Raises EngineError when it is another one."""
        while True:
            try:
                found = await self._api.facts()
            except ServerLostError as error:
                await outage.wait(error)
                continue
            if (found.software, found.identity) != (self.facts.software, self.facts.identity):
                raise ServerRefusedError(
                    f"wanted {self.facts.software} with {self.facts.model} again; found "
                    f"{found.software} with {found.model}; start the same server, or a new recording"
                )
            return


class Outage:
    """Time without a new token."""

    def __init__(self, patience: Patience, clock: Clock) -> None:
        self._patience, self._clock = patience, clock
        self._since: float | None = None
        self._pause = patience.first_s

    def over(self, *, progress: bool) -> None:
        """The server answered."""
        if progress:
            self._since, self._pause = None, self._patience.first_s

    async def wait(self, error: ServerLostError) -> None:
        """Until the next attempt. Raises EngineError when patience is at its end."""
        now = self._clock.now()
        self._since = now if self._since is None else self._since
        if now - self._since >= self._patience.total_s:
            raise EngineError(
                f"{error}; gave up after {self._patience.total_s:.0f} s without a new token"
            ) from error
        await self._clock.sleep(self._pause)
        self._pause = min(2 * self._pause, self._patience.longest_s)


def is_whole(request: GenerateRequest, got: list[int]) -> bool:
    """Whether these tokens, after those it came with, are all that the request can give."""
    full = request.first_index + len(got) >= request.sampling.max_new_tokens
    return full or has_stopped(request, got)


def has_stopped(request: GenerateRequest, got: list[int]) -> bool:
    """Whether the newest token of the answer ends it."""
    answer = [*request.prompt_ids[len(request.prompt_ids) - request.first_index :], *got]
    return bool(answer) and answer[-1] in request.sampling.stop_ids


def remaining(request: GenerateRequest, got: list[int]) -> GenerateRequest:
    """The request that asks for what is still to come."""
    if not got:
        return request
    return msgspec.structs.replace(
        request,
        prompt_ids=[*request.prompt_ids, *got],
        first_index=request.first_index + len(got),
    )


def check_whole_distribution(request: GenerateRequest) -> None:
    """Servers report log-probabilities before top-p and top-k cut the distribution."""
    sampling = request.sampling
    if sampling.temperature and (sampling.top_p < 1 or sampling.top_k):
        raise ServerRefusedError(
            f"wanted top_p 1 and no top_k; found {sampling.top_p} and {sampling.top_k}; servers do "
            "not tell log-probabilities under a cut distribution"
        )


def _end(request: GenerateRequest, got: list[int]) -> TokenChunk:
    return TokenChunk(
        request_id=request.request_id,
        token_ids=[],
        logprobs=[],
        version=0,
        finish=FinishReason.STOP if has_stopped(request, got) else FinishReason.LENGTH,
    )
