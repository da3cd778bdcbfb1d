"""Cells as processes of this machine.

Weights change only under the weights lock: a cell that changes role, a step and a publication never
see one another's half. Everything else is the switchboard's and the deliveries' invariants.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from opengyre.cluster import wire
from opengyre.cluster.base import CORE, CellLostError, Counters, RoleChange, SwitchReport
from opengyre.cluster.deliveries import Deliveries
from opengyre.cluster.flights import Switchboard
from opengyre.cluster.link import CellLink
from opengyre.cluster.routes import Routes
from opengyre.cluster.snapshots import Snapshots
from opengyre.config.run import CellsSection, LearnerSection
from opengyre.core.errors import ClusterError, EngineError, OpenGyreError, TransferError
from opengyre.core.protocols import Clock
from opengyre.core.reasons import CellRole
from opengyre.core.records import GenerateRequest, MicroStep, TokenChunk
from opengyre.learner.stats import MicroStats, StepStats
from opengyre.transfer.folder import MEMORY, ShmDir

PROBE_S = 2.0
"""How often cells are asked whether they live; cheap beside a token."""

T = TypeVar("T")
R = TypeVar("R", bound=wire.Result)


class LocalCluster:
    """K cells; see base.Cluster."""

    def __init__(  # noqa: PLR0913 - the wiring of a run, called in one place
        self,
        settings: CellsSection,
        learner: LearnerSection,
        model_folder: Path,
        run_folder: Path,
        *,
        temperature: float,
        context_tokens: int,
        version: int,
        clock: Clock,
        evens_out: bool = False,
    ) -> None:
        """evens_out: whether executions leave a crowded cell between two calls."""
        self.version = version
        self.counters = Counters()
        self.history: list[RoleChange] = []
        self.lost: asyncio.Queue[int] = asyncio.Queue()
        self._settings, self._clock, self._run_folder = settings, clock, run_folder
        self._roles = [CellRole.LOST] * settings.count
        self._links: list[CellLink | None] = [None] * settings.count
        self._routes = Routes(settings.capacity, evens_out=evens_out)
        self._board = Switchboard(self._routes, self._send, clock, self.counters)
        self._deliveries = Deliveries()
        self._snapshots = Snapshots(stamp=0)
        self._weights = asyncio.Lock()
        self._accumulating = 0
        self._saved: wire.Snapshot | None = self._snapshots.newest
        """Weights whose optimiser state is on disk (or not there yet)."""
        self._shared: ShmDir | None = None
        self._probing: asyncio.Task[None] | None = None
        self._closing = False
        self._setup = wire.Setup(
            model_folder=str(model_folder),
            checkpoint=None,
            core=False,
            shared_folder="",
            learner=learner.model_dump_json(),
            block_tokens=settings.block_tokens,
            kv_tokens=settings.kv_tokens,
            context_tokens=context_tokens,
            temperature=temperature,
            threads=settings.threads,
            version=version,
            stamp=0,
        )

    @property
    def roles(self) -> list[CellRole]:
        return list(self._roles)

    def pid(self, cell: int) -> int:
        """Process id of a cell, for whoever watches or kills it."""
        return self._link(cell).pid

    def in_flight(self, cell: int) -> int:
        """Calls that the cell is answering now."""
        return len(self._board.on(cell))

    # ---- life ---------------------------------------------------------------

    async def start(self, checkpoint: Path | None = None) -> None:
        """Start all cells, in rollout. checkpoint: weights and optimiser state to go on from."""
        remove_stale(MEMORY)
        self._shared = ShmDir.for_run(self._run_folder)
        self._setup = msgspec.structs.replace(
            self._setup,
            shared_folder=str(self._shared.path),
            checkpoint=str(checkpoint) if checkpoint else None,
        )
        (self._run_folder / "cells").mkdir(parents=True, exist_ok=True)
        try:
            await _all(self._spawn(cell) for cell in range(self._settings.count))
            await self._write_first_snapshot()
            await _all(self._serve(cell) for cell in range(self._settings.count))
        except BaseException:
            await self.close()
            raise
        self._probing = asyncio.create_task(self._probe())

    async def close(self) -> None:
        """End all cells and remove what the run has in shared memory."""
        self._closing = True
        self._board.end_all("the cluster is closed")
        if self._probing is not None:
            self._probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probing
        await asyncio.gather(*(link.close() for link in self._links if link is not None))
        if self._shared is not None:
            self._shared.close()

    async def restart(self, cell: int) -> None:
        """Bring a lost cell back, in rollout.

        Raises ClusterError for a core that has stepped since its last checkpoint: its optimiser state
        is gone, so the run must go on from that checkpoint.
        """
        if self._roles[cell] is not CellRole.LOST:
            raise ClusterError(f"wanted a lost cell, found cell {cell} in {self._roles[cell]}")
        if cell == CORE and self._saved != self._snapshots.newest:
            raise ClusterError(
                "the core was lost after a step that no checkpoint has; resume the run from its last"
            )
        await self._link(cell).close()
        self._set_role(cell, CellRole.SWITCHING)
        await self._spawn(cell)
        async with self._weights:
            await self._serve(cell)

    async def _spawn(self, cell: int) -> None:
        link = CellLink(cell, self._clock, self._board.deliver, self._on_lost)
        self._links[cell] = link
        log = self._run_folder / "cells" / f"cell-{cell}.log"
        await link.start(cpu_share(cell, self._settings.threads), self._settings.threads, log)
        setup = msgspec.structs.replace(self._setup, core=cell == CORE)
        await self._switching(cell, setup, wire.Done)

    async def _write_first_snapshot(self) -> None:
        snapshots = self._snapshots
        command = wire.WriteSnapshot(snapshot=snapshots.newest)
        loaded = await self._link(CORE).ask(command, wire.Loaded)
        written = msgspec.structs.replace(snapshots.newest, checksum=loaded.checksum)
        snapshots.newest = snapshots.published = self._saved = written

    async def _probe(self) -> None:
        while True:
            await self._clock.sleep(PROBE_S)
            for link in self._links:
                if link is not None:
                    link.probe()

    def _on_lost(self, cell: int) -> None:
        if self._closing:
            return
        self._set_role(cell, CellRole.LOST)
        self.counters.cells_lost += 1
        self._deliveries.lost(cell)
        self._board.lost(cell)
        self.lost.put_nowait(cell)

    # ---- rollout ------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """See core.protocols.Generator. Waits while no cell serves."""
        if self._closing:
            raise EngineError("the cluster is closed")
        flight = self._board.admit(request)
        try:
            while True:
                item = await flight.outbox.get()
                if isinstance(item, EngineError):
                    raise item
                yield item
                if item.finish is not None:
                    return
        finally:
            wire_id = flight.wire_id
            cell = self._board.forget(flight)
            if cell is not None:
                self._link(cell).post(wire.Cancel(request_id=wire_id), lambda _: None)

    def release(self, execution_id: str) -> None:
        self._routes.release(execution_id)

    def home(self, execution_id: str) -> int | None:
        """The cell where the execution's calls go; None before its first and after its release."""
        return self._routes.home(execution_id)

    def _send(self, cell: int, request: GenerateRequest, kv: Path | None) -> None:
        def then(result: wire.Result | CellLostError) -> None:
            if isinstance(result, wire.Accepted):
                self._board.accepted(request.request_id, with_kv=result.with_kv)
            elif isinstance(result, wire.Failure):
                self._board.refused(request.request_id, f"cell {cell}: {result.message}")

        command = wire.Generate(request=request, kv=str(kv) if kv else None)
        self._link(cell).post(command, then)

    async def pause(self) -> None:
        self._board.paused = True
        await self._tell_serving(wire.Pause())

    async def resume(self) -> None:
        await self._tell_serving(wire.Resume())
        self._board.paused = False
        self._board.dispatch()

    async def _tell_serving(self, command: wire.Command) -> None:
        serving = self._in_role(CellRole.ROLLOUT)
        await _all(_unless_lost(self._link(c).ask(command, wire.Done)) for c in serving)

    # ---- role switches ------------------------------------------------------

    async def to_training(self, cell: int) -> SwitchReport:
        """Raises CellLostError; its calls go on elsewhere all the same."""
        began = self._clock.now()
        self._leave(cell, CellRole.ROLLOUT)
        self._board.close(cell)
        assert self._shared is not None
        # Held calls go on under the next version, for which today's KV is of no use.
        folder = None if self._board.paused else str(self._shared.path)
        command = wire.MoveOut(request_ids=self._board.on(cell), folder=folder)
        moved = (await self._switching(cell, command, wire.MovedOut)).requests
        self._board.moved({m.request_id: Path(m.kv) if m.kv else None for m in moved}, began)
        async with self._weights:
            await self._load(cell, wire.ToTraining(snapshot=self._snapshots.newest))
        self._set_role(cell, CellRole.TRAINING)
        with_kv = sum(m.kv is not None for m in moved)
        return SwitchReport(cell, self._clock.now() - began, with_kv, len(moved) - with_kv)

    async def to_rollout(self, cell: int) -> None:
        """Raises CellLostError. Gradients that the cell has are delivered first."""
        self._leave(cell, CellRole.TRAINING)
        async with self._weights:
            if cell != CORE:
                await self._deliver(cell)
            await self._serve(cell)

    def _leave(self, cell: int, role: CellRole) -> None:
        if self._roles[cell] is CellRole.LOST:
            raise CellLostError(cell, f"it was to leave {role}")
        if self._roles[cell] is not role:
            raise ClusterError(f"wanted cell {cell} in {role}, found it in {self._roles[cell]}")
        self._set_role(cell, CellRole.SWITCHING)

    async def _serve(self, cell: int) -> None:
        command = wire.LoadVersion(version=self.version, snapshot=self._snapshots.published)
        await self._load(cell, command)
        self._set_role(cell, CellRole.ROLLOUT)
        self._board.open(cell)

    async def _load(
        self, cell: int, command: wire.ToTraining | wire.LoadVersion | wire.PullWeights
    ) -> int:
        """Raises ClusterError when the cell's weights are not those of the snapshot."""
        loaded = await self._switching(cell, command, wire.Loaded)
        wanted = command.snapshot.checksum
        if loaded.checksum != wanted:
            self._link(cell).fail()
            raise ClusterError(
                f"wanted weights with checksum {wanted:08x} on cell {cell}, "
                f"found {loaded.checksum:08x}; restart that cell"
            )
        return loaded.checksum

    async def _switching(self, cell: int, command: wire.Command, wanted: type[R]) -> R:
        """Ask; a cell that fails half-way between roles or weights is given up."""
        link = self._link(cell)
        try:
            return await link.ask(command, wanted)
        except OpenGyreError:
            link.fail()
            raise

    # ---- training -----------------------------------------------------------

    async def accumulate(self, cell: int, micro: MicroStep) -> MicroStats:
        """Raises CellLostError: the micro-step and undelivered(cell) must be done again."""
        async with self._weights:  # not while a step is between its gradients and its weights
            self._check_trains(cell)
            self._accumulating += 1
        try:
            done = await self._link(cell).ask(wire.Accumulate(micro=micro), wire.Accumulated)
        finally:
            self._accumulating -= 1
        self._deliveries.computed(cell, micro.micro_id)
        return done.stats

    def _check_trains(self, cell: int) -> None:
        if self._roles[cell] is CellRole.LOST:
            raise CellLostError(cell, "it was to train")
        if self._roles[cell] is not CellRole.TRAINING:
            raise ClusterError(f"wanted cell {cell} in training, found it in {self._roles[cell]}")

    def undelivered(self, cell: int) -> list[str]:
        return self._deliveries.take_undelivered(cell)

    async def step(self, step: int, executions: int, learning_rate: float) -> StepStats:
        async with self._weights:
            if self._accumulating:
                raise ClusterError(f"step {step} was asked for while micro-steps are computed")
            holders = self._deliveries.holders()
            await _all(self._deliver(cell) for cell in holders if cell != CORE)
            owing = self._deliveries.owing()
            if owing is not None:
                raise CellLostError(owing, f"it held gradients of step {step}")
            stats = await self._core_step(executions, learning_rate)
            pull = wire.PullWeights(snapshot=self._snapshots.newest)
            training = self._in_role(CellRole.TRAINING)
            await _all(_unless_lost(self._load(c, pull)) for c in training if c != CORE)
            return stats

    async def _deliver(self, cell: int) -> None:
        """Bring a cell's gradients, if any, to shared memory, where they outlive it."""
        if cell not in self._deliveries.holders():
            return
        source = self._deliveries.new_source(cell)
        await self._link(cell).ask(wire.ExportGradients(name=source), wire.Done)
        self._deliveries.delivered(cell, source)

    async def _core_step(self, executions: int, learning_rate: float) -> StepStats:
        self._check_trains(CORE)
        snapshot = self._snapshots.next()
        command = wire.CoreStep(
            executions=executions,
            learning_rate=learning_rate,
            gradients=self._deliveries.sources(),
            snapshot=snapshot,
        )
        done = await self._link(CORE).ask(command, wire.Stepped)
        self._snapshots.stepped(msgspec.structs.replace(snapshot, checksum=done.checksum))
        assert self._shared is not None
        for source in self._deliveries.stepped():
            (self._shared.path / source).unlink(missing_ok=True)
        return done.stats

    async def publish(self, version: int) -> dict[int, int]:
        """Raises ClusterError when a cell's weights are not the core's, CellLostError for the core."""
        async with self._weights:
            self._snapshots.publish()
            self.version = version
            self.counters.versions += 1
            self._board.drop_stale_kv()
            command = wire.LoadVersion(version=version, snapshot=self._snapshots.published)
            serving = self._in_role(CellRole.ROLLOUT)
            loads = [_unless_lost(self._load(c, command)) for c in serving]
            if self._roles[CORE] is CellRole.TRAINING:
                serving.append(CORE)
                loads.append(self._load(CORE, wire.PullWeights(snapshot=command.snapshot)))
            checksums = zip(serving, await _all(loads), strict=True)
            return {cell: crc for cell, crc in checksums if crc is not None}

    async def save(self, root: Path, *, step: int, version: int, keep: int = 2) -> Path:
        async with self._weights:
            newest = self._snapshots.newest
            command = wire.Save(
                root=str(root), step=step, version=version, keep=keep, snapshot=newest
            )
            saved = await self._link(CORE).ask(command, wire.Saved)
            self._saved = newest
            self._setup = msgspec.structs.replace(
                self._setup,
                model_folder=saved.folder,  # the one before may be a checkpoint that is dropped
                checkpoint=saved.folder,
                stamp=newest.stamp,
            )
            return Path(saved.folder)

    # ---- cells --------------------------------------------------------------

    def _link(self, cell: int) -> CellLink:
        link = self._links[cell]
        assert link is not None, "the cluster was not started"
        return link

    def _in_role(self, role: CellRole) -> list[int]:
        return [cell for cell, r in enumerate(self._roles) if r is role]

    def _set_role(self, cell: int, role: CellRole) -> None:
        self._roles[cell] = role
        self.history.append(RoleChange(cell, role, self._clock.now()))


def remove_stale(memory: Path) -> None:
    """Remove what killed runs left in shared memory: it would be lost to the machine until a reboot."""
    for folder in memory.glob("opengyre-*"):
        with contextlib.suppress(TransferError):  # a live run's, or another user's
            ShmDir(folder).close()


def cpu_share(cell: int, threads: int) -> list[int]:
    """The cell's own CPUs; shared only when there are fewer than all cells' threads."""
    cpus = sorted(os.sched_getaffinity(0))
    return sorted({cpus[(cell * threads + i) % len(cpus)] for i in range(threads)})


async def _all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all of them, then raise the first failure: nothing goes on behind our back."""
    results = await asyncio.gather(*awaitables, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [r for r in results if not isinstance(r, BaseException)]


async def _unless_lost(awaitable: Awaitable[T]) -> T | None:
    """None for a cell that was lost meanwhile: whoever watches `lost` deals with it."""
    try:
        return await awaitable
    except CellLostError:
        return None
