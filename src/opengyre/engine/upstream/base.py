"""What a model server must offer, whichever API it speaks.

Invariant: a stream gives each sampled token once, with its log-probability under the distribution
that it was drawn from, and ends with exactly one finish; else it raises.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from opengyre.core.errors import EngineError
from opengyre.core.records import GenerateRequest, TokenChunk


class ServerLostError(EngineError):
    """Out of reach, overloaded, cut or silent: worth another try from the tokens received."""


class ServerRefusedError(EngineError):
    """The server said no, or said something that breaks a promise: asking again does not help."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a server says about itself."""

    software: str
    """"SGLang" or "vLLM"."""
    release: str
    model: str
    """The name or the folder that it was started with."""
    context_tokens: int | None
    """Longest prompt + answer; None when it does not say."""
    identity: str
    """Stays the same as long as it is the same policy, whatever weights it has by now."""


class UpstreamCounts(Struct):
    """What happened between us and the server. Made by engine; read by app."""

    requests: int = 0
    """Generations asked for."""
    answered: int = 0
    """Of those, the ones that came to a finish."""
    cancelled: int = 0
    """Of those, the ones that the asker gave up; the server was told."""
    failed: int = 0
    """Of those, the ones that could not be answered."""
    in_flight: int = 0
    """Of those, the ones still going on."""
    tokens: int = 0
    """Tokens received."""
    prompt_tokens: int = 0
    """Tokens sent, each attempt counted."""
    cached_tokens: int = 0
    """Of those, the ones that the server had in its prefix cache (where it says so)."""
    losses: int = 0
    """Attempts that ended with the server out of reach, cut or silent."""
    continued: int = 0
    """Attempts that went on from tokens already received."""


class ServerApi(Protocol):
    """One kind of server."""

    hottest: float
    """The highest temperature that it takes."""

    async def facts(self) -> Facts:
        """Also the health check. Raises EngineError."""
        ...

    async def tokenize(self, text: str) -> list[int] | None:
        """How the server's own tokenizer reads a text; None when it has no such route."""
        ...

    def stream(
        self, request: GenerateRequest, attempt: str, counts: UpstreamCounts
    ) -> AsyncGenerator[TokenChunk, None]:
        """One attempt, named `attempt` at the server; closing the iterator aborts it there.

        request.sampling.max_new_tokens counts from first_index 0, as everywhere. Raises
        ServerLostError or ServerRefusedError.
        """
        ...

    async def close(self) -> None:
        """Let go of connections, after aborts that are on their way."""
        ...
