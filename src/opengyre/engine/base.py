"""What every engine offers to its cell: one thread, one step at a time.

Invariant: step() delivers each sampled token of a request exactly once; cancel() and export_kv()
therefore never carry tokens of their own.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from torch import Tensor

from opengyre.core.records import GenerateRequest, TokenChunk


class EngineStats(Struct):
    """Counters since the engine was made. Made by engine; read by cluster and report."""

    imported: int = 0
    """Moved calls whose KV blocks were used."""
    recomputed: int = 0
    """Moved calls whose KV blocks could not be used."""
    export_failures: int = 0
    """Calls that left without KV blocks although they had some."""
    prefix_hit_tokens: int = 0
    """Tokens found in the prefix cache, counted whenever a request is admitted."""
    prefill_tokens: int = 0
    """Tokens computed that were not sampled in the step before."""
    decode_tokens: int = 0
    """Tokens sampled."""
    preemptions: int = 0
    """Times a request lost its KV blocks to an older one."""
    evictions: int = 0
    """Blocks dropped from the prefix cache to make room."""


class Engine(Protocol):
    """Makes tokens. Raises EngineError for what it cannot serve."""

    stats: EngineStats

    @property
    def version(self) -> int:
        """Weight version that the next token will be computed with."""
        ...

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        ...

    def submit(self, request: GenerateRequest, kv: Path | None = None) -> bool:
        """Queue a request; `kv` is a blob that export_kv wrote for the same call.

        True when the blob will be used, False when there is none or it cannot be (counted). The
        blob has been read when this returns. Raises EngineError when the request cannot be served.
        """
        ...

    def step(self) -> list[TokenChunk]:
        """Compute a bounded amount and return the tokens it gave (maybe none)."""
        ...

    def cancel(self, request_id: str) -> TokenChunk | None:
        """Forget a request: an empty chunk with finish ABORT, or None when it is not here."""
        ...

    def export_kv(self, request_id: str, path: Path) -> bool:
        """Forget a request, leaving its KV blocks in a blob; False when no blob was written."""
        ...

    def load_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Replace all weights. Unfinished requests keep their tokens and go on under `version`."""
        ...

    def drop_kv(self) -> None:
        """Free the KV memory; unfinished requests keep their tokens and recompute when stepped."""
        ...
