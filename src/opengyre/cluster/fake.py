"""A cluster without processes: scripted tokens, gradients as sums of sizes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from opengyre.cluster.base import CORE, CellLostError, Counters, RoleChange, SwitchReport
from opengyre.cluster.deliveries import Deliveries
from opengyre.core.errors import ClusterError, EngineError
from opengyre.core.protocols import Clock
from opengyre.core.reasons import CellRole, FinishReason
from opengyre.core.records import GenerateRequest, MicroStep, TokenChunk
from opengyre.learner.stats import MicroStats, StepStats

Script = Callable[[GenerateRequest], list[int]]
"""The whole answer to a request, stop token included."""
LOGPROB = -0.5
"""Of every scripted token."""


class FakeCluster:
    """See base.Cluster. `lose(cell)` kills a cell."""

    def __init__(self, count: int, script: Script, clock: Clock, version: int = 0) -> None:
        self.version = version
        self.counters = Counters()
        self.history: list[RoleChange] = []
        self.lost: asyncio.Queue[int] = asyncio.Queue()
        self.requests: list[GenerateRequest] = []
        self.released: list[str] = []
        self.steps: list[StepStats] = []
        self.micro_ids: list[str] = []
        """Micro-steps that counted in steps, in order."""
        self._script, self._clock = script, clock
        self._roles = [CellRole.LOST] * count
        self._deliveries = Deliveries()
        self._computed: list[str] = []
        self._paused = self._closed = False
        self._may_generate = asyncio.Event()

    @property
    def roles(self) -> list[CellRole]:
        return list(self._roles)

    async def start(self, checkpoint: Path | None = None) -> None:
        for cell in range(len(self._roles)):
            self._set_role(cell, CellRole.ROLLOUT)

    async def close(self) -> None:
        self._closed = True
        self._may_generate.set()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        self.requests.append(request)
        tokens = self._script(request)
        whole = len(tokens) <= request.sampling.max_new_tokens
        tokens = tokens[: request.sampling.max_new_tokens]
        for i, token in enumerate(tokens):
            await self._may_generate.wait()
            if self._closed:
                raise EngineError("the cluster is closed")
            last = FinishReason.STOP if whole else FinishReason.LENGTH
            yield TokenChunk(
                request_id=request.request_id,
                token_ids=[token],
                logprobs=[LOGPROB],
                version=self.version,
                finish=last if i == len(tokens) - 1 else None,
            )

    def release(self, execution_id: str) -> None:
        self.released.append(execution_id)

    async def to_training(self, cell: int) -> SwitchReport:
        self._check(cell, CellRole.ROLLOUT)
        self._set_role(cell, CellRole.TRAINING)
        return SwitchReport(cell, 0.0, 0, 0)

    async def to_rollout(self, cell: int) -> None:
        self._check(cell, CellRole.TRAINING)
        self._set_role(cell, CellRole.ROLLOUT)

    async def accumulate(self, cell: int, micro: MicroStep) -> MicroStats:
        self._check(cell, CellRole.TRAINING)
        self._deliveries.computed(cell, micro.micro_id)
        self._computed.append(micro.micro_id)
        return MicroStats(
            executions=float(len(micro.samples)),
            trajectories=sum(len(s.trajectories) for s in micro.samples),
            trained_tokens=sum(len(t.owned) for s in micro.samples for t in s.trajectories),
            packed_tokens=micro.packed_tokens,
            expanded_tokens=micro.expanded_tokens,
        )

    def undelivered(self, cell: int) -> list[str]:
        gone = self._deliveries.take_undelivered(cell)
        self._computed = [m for m in self._computed if m not in gone]
        return gone

    async def step(self, step: int, executions: int, learning_rate: float) -> StepStats:
        self._check(CORE, CellRole.TRAINING)
        owing = self._deliveries.owing()
        if owing is not None:
            raise CellLostError(owing, f"it held gradients of step {step}")
        self._deliveries.stepped()
        self.micro_ids += self._computed
        self._computed.clear()
        stats = StepStats(
            executions=executions, learning_rate=learning_rate, gradient_norm=1.0, clipped=False
        )
        self.steps.append(stats)
        return stats

    async def publish(self, version: int) -> dict[int, int]:
        self.version = version
        self.counters.versions += 1
        return {c: 0 for c, role in enumerate(self._roles) if role is CellRole.ROLLOUT}

    async def pause(self) -> None:
        self._paused = True
        self._update()

    async def resume(self) -> None:
        self._paused = False
        self._update()

    async def save(self, root: Path, *, step: int, version: int, keep: int = 2) -> Path:
        folder = root / f"step-{step:08d}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def restart(self, cell: int) -> None:
        self._check(cell, CellRole.LOST)
        self._set_role(cell, CellRole.ROLLOUT)

    def lose(self, cell: int) -> None:
        """Kill a cell."""
        self._set_role(cell, CellRole.LOST)
        self.counters.cells_lost += 1
        self._deliveries.lost(cell)
        self.lost.put_nowait(cell)

    def _check(self, cell: int, role: CellRole) -> None:
        found = self._roles[cell]
        if found is CellRole.LOST and role is not CellRole.LOST:
            raise CellLostError(cell, f"it was wanted in {role}")
        if found is not role:
            raise ClusterError(f"wanted cell {cell} in {role}, found it in {found}")

    def _set_role(self, cell: int, role: CellRole) -> None:
        self._roles[cell] = role
        self.history.append(RoleChange(cell, role, self._clock.now()))
        self._update()

    def _update(self) -> None:
        if CellRole.ROLLOUT in self._roles and not self._paused:
            self._may_generate.set()
        else:
            self._may_generate.clear()
