"""What a cluster promises to the controller and the proxy.

No token of a call is lost or repeated through a role switch, a published version or a lost satellite;
a micro-step's gradients count exactly once in its step.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from opengyre.core.errors import ClusterError
from opengyre.core.reasons import CellRole
from opengyre.core.records import GenerateRequest, MicroStep, TokenChunk
from opengyre.learner.stats import MicroStats, StepStats

CORE = 0
"""The cell with the authoritative weights and the only optimiser state."""


class CellLostError(ClusterError):
    """A cell's process died or was wedged: what it had not delivered must be done again."""

    def __init__(self, cell: int, doing: str) -> None:
        self.cell = cell
        super().__init__(f"cell {cell} was lost while {doing}; its log is cells/cell-{cell}.log")


@dataclass(frozen=True)
class SwitchReport:
    """One role switch from rollout to training."""

    cell: int
    seconds: float
    moved_with_kv: int
    """In-flight calls whose KV blocks were exported."""
    recomputed: int
    """In-flight calls that go on from their tokens alone."""


@dataclass(frozen=True)
class RoleChange:
    """A cell took a role; the report draws lanes from these."""

    cell: int
    role: CellRole
    at: float


@dataclass(frozen=True)
class Move:
    """An in-flight call went on at another cell (or again at its own)."""

    request_id: str
    cell: int
    with_kv: bool
    tokens: int
    """Prompt + generated tokens at the move."""
    stall_s: float
    """From the interruption to the next token."""


@dataclass
class Counters:
    """What happened so far in the run."""

    moved_with_kv: int = 0
    recomputed: int = 0
    cancelled: int = 0
    versions: int = 0
    """Weight versions published."""
    cells_lost: int = 0
    moves: list[Move] = field(default_factory=list)


class Cluster(Protocol):
    """Cells as one: LocalCluster (processes of this machine), FakeCluster (a script)."""

    version: int
    """Weight version that rollout cells serve."""
    counters: Counters
    history: list[RoleChange]
    lost: asyncio.Queue[int]
    """Cells (indices) as they are lost."""

    @property
    def roles(self) -> list[CellRole]:
        """Of each cell, by index."""
        ...

    async def start(self, checkpoint: Path | None = None) -> None:
        """All cells up, in rollout. checkpoint: weights and optimiser state to go on from."""
        ...

    async def close(self) -> None:
        """All cells gone; calls in flight end with EngineError."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """See core.protocols.Generator."""
        ...

    def release(self, execution_id: str) -> None:
        """The execution is over: it takes no capacity any more."""
        ...

    async def to_training(self, cell: int) -> SwitchReport:
        """Move the cell's calls elsewhere and give it the core's weights."""
        ...

    async def to_rollout(self, cell: int) -> None:
        """Give the cell the published weights and let it serve calls."""
        ...

    async def accumulate(self, cell: int, micro: MicroStep) -> MicroStats:
        """One forward-backward. Raises CellLostError: then the micro-step must be done again."""
        ...

    def undelivered(self, cell: int) -> list[str]:
        """Take the micro-steps (ids) whose gradients went down with a lost cell, each told once."""
        ...

    async def step(self, step: int, executions: int, learning_rate: float) -> StepStats:
        """Sum all gradients, step the optimiser, bring training cells to the new weights.

        Raises CellLostError while micro-steps of a lost cell have not been taken by undelivered().
        """
        ...

    async def publish(self, version: int) -> dict[int, int]:
        """Serve the core's weights as this version; checksum of each serving cell, all equal."""
        ...

    async def pause(self) -> None:
        """Stop generation everywhere; calls in flight keep their tokens."""
        ...

    async def resume(self) -> None:
        """Go on after pause."""
        ...

    async def save(self, root: Path, *, step: int, version: int, keep: int = 2) -> Path:
        """Write root/step-N, which transformers loads and a run resumes from; drop older ones.

        version: what these weights were or will be published as.
        """
        ...

    async def restart(self, cell: int) -> None:
        """Bring a lost cell back, in rollout."""
        ...
