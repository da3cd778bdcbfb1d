"""What a cell does for each command: one model that either its engine or its trainer uses.

The weights in the model are always those of one whole snapshot (or of the core's last step).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from opengyre.cluster import wire
from opengyre.config.run import LearnerSection
from opengyre.core.errors import ClusterError
from opengyre.core.records import TokenChunk
from opengyre.engine.base import Engine
from opengyre.engine.embedded import EmbeddedEngine, EngineLimits
from opengyre.learner import checkpoint
from opengyre.learner.trainer import Trainer
from opengyre.model.folder import load_model
from opengyre.transfer.manifest import checksum
from opengyre.transfer.shared import SharedTensors, share


class Duties:
    """Made empty, so that the first command, Setup, can fail with an answer."""

    def __init__(self) -> None:
        self.stopped = False
        self._cell: _Cell | None = None

    @property
    def busy(self) -> bool:
        return self._cell is not None and self._cell.busy

    def do(self, command: wire.Command) -> wire.Result:
        if isinstance(command, wire.Ping):
            return wire.Done()
        if isinstance(command, wire.Stop):
            self.stopped = True
            return wire.Done()
        if isinstance(command, wire.Setup):
            self._cell = _Cell(command)
            return wire.Done()
        if self._cell is None:
            raise ClusterError("wanted Setup as the first command")
        return self._cell.do(command)

    def generate(self) -> list[TokenChunk]:
        assert self._cell is not None
        return self._cell.engine.step()


class _Cell:
    def __init__(self, setup: wire.Setup) -> None:
        torch.set_num_threads(setup.threads)
        self._folder = Path(setup.model_folder)
        self._shared = Path(setup.shared_folder)
        self._weights = wire.Snapshot("", setup.stamp)
        self._paused = False
        self._added: set[str] = set()
        """Gradients that a step which failed half-way has already added."""
        saved = checkpoint.load(Path(setup.checkpoint)) if setup.checkpoint else None
        self.model = saved.model if saved else load_model(self._folder)
        limits = EngineLimits(
            kv_tokens=setup.kv_tokens,
            block_tokens=setup.block_tokens,
            max_context=setup.context_tokens,
        )
        self.engine: Engine = EmbeddedEngine(self.model, setup.version, limits)
        learner = LearnerSection.model_validate_json(setup.learner)
        self.trainer = Trainer(self.model, learner, setup.temperature)
        if setup.core:
            self.trainer.prepare()
        if saved is not None and setup.core:
            self.trainer.load_optimiser_state(saved.optimiser)
        self._handlers: dict[type[wire.Command], Callable[[Any], wire.Result]] = {
            wire.Generate: self._generate,
            wire.Cancel: self._cancel,
            wire.MoveOut: self._move_out,
            wire.Pause: self._pause,
            wire.Resume: self._resume,
            wire.ToTraining: self._to_training,
            wire.PullWeights: self._pull_weights,
            wire.LoadVersion: self._load_version,
            wire.WriteSnapshot: self._write_snapshot,
            wire.Accumulate: self._accumulate,
            wire.ExportGradients: self._export_gradients,
            wire.CoreStep: self._core_step,
            wire.Save: self._save,
        }

    @property
    def busy(self) -> bool:
        return self.engine.busy and not self._paused

    def do(self, command: wire.Command) -> wire.Result:
        return self._handlers[type(command)](command)

    def _generate(self, command: wire.Generate) -> wire.Result:
        kv = Path(command.kv) if command.kv else None
        return wire.Accepted(with_kv=self.engine.submit(command.request, kv))

    def _cancel(self, command: wire.Cancel) -> wire.Result:
        self.engine.cancel(command.request_id)
        return wire.Done()

    def _move_out(self, command: wire.MoveOut) -> wire.Result:
        self._paused = False
        folder = Path(command.folder) if command.folder is not None else None
        return wire.MovedOut(requests=[self._export(r, folder) for r in command.request_ids])

    def _export(self, request_id: str, folder: Path | None) -> wire.Moved:
        if folder is None:
            self.engine.cancel(request_id)
            return wire.Moved(request_id, None)
        path = folder / f"kv-{request_id}"
        exported = self.engine.export_kv(request_id, path)
        return wire.Moved(request_id, str(path) if exported else None)

    def _pause(self, _: wire.Pause) -> wire.Result:
        self._paused = True
        return wire.Done()

    def _resume(self, _: wire.Resume) -> wire.Result:
        self._paused = False
        return wire.Done()

    def _to_training(self, command: wire.ToTraining) -> wire.Result:
        self.engine.drop_kv()
        return self._pull(command.snapshot)

    def _pull_weights(self, command: wire.PullWeights) -> wire.Result:
        return self._pull(command.snapshot)

    def _pull(self, snapshot: wire.Snapshot) -> wire.Loaded:
        """Bring the model to a snapshot, unless it is there already."""
        if self._weights.stamp != snapshot.stamp:
            shared = SharedTensors.open(self._shared, snapshot.name)
            try:
                shared.read(dict(self.model.named_weights()), snapshot.stamp)
            finally:
                shared.close()
        self._weights = snapshot
        return wire.Loaded(checksum=checksum(self.model.named_weights()))

    def _load_version(self, command: wire.LoadVersion) -> wire.Result:
        loaded = self._pull(command.snapshot)
        self.engine.load_weights(command.version, self.model.named_weights())
        return loaded

    def _write_snapshot(self, command: wire.WriteSnapshot) -> wire.Result:
        return wire.Loaded(checksum=self._write(command.snapshot))

    def _write(self, snapshot: wire.Snapshot) -> int:
        """Write the model as this snapshot; it then is what the model holds."""
        crc = self._share(snapshot.name, snapshot.stamp, dict(self.model.named_weights()))
        self._weights = snapshot
        return crc

    def _share(self, name: str, stamp: int, tensors: dict[str, torch.Tensor]) -> int:
        """Write into shared memory that outlives this process: the cluster removes it."""
        exists = (self._shared / name).exists()
        target = (
            SharedTensors.open(self._shared, name, writable=True)
            if exists
            else share(self._shared, name, tensors.items())
        )
        return target.write(stamp, tensors)

    def _accumulate(self, command: wire.Accumulate) -> wire.Result:
        return wire.Accumulated(stats=self.trainer.accumulate(command.micro))

    def _export_gradients(self, command: wire.ExportGradients) -> wire.Result:
        self._share(command.name, self._weights.stamp, dict(self.trainer.gradients()))
        self.trainer.zero()
        return wire.Done()

    def _core_step(self, command: wire.CoreStep) -> wire.Result:
        for name in command.gradients:
            if name in self._added:
                continue
            shared = SharedTensors.open(self._shared, name)
            try:
                snapshot = shared.snapshot(self._weights.stamp)
            finally:
                shared.close()
            self.trainer.add_gradients(snapshot.tensors.items())
            self._added.add(name)
        stats = self.trainer.step(command.executions, command.learning_rate)
        self._added.clear()
        return wire.Stepped(stats=stats, checksum=self._write(command.snapshot))

    def _save(self, command: wire.Save) -> wire.Result:
        serving = self._weights
        self._pull(command.snapshot)
        try:
            mark = checkpoint.Mark(step=command.step, version=command.version)
            folder = checkpoint.save(
                Path(command.root),
                self.model,
                self._folder,
                self.trainer.optimiser_state(),
                mark,
                command.keep,
            )
        finally:
            self._pull(serving)
        self._folder = folder  # the one before may be dropped as too old; the newest never is
        return wire.Saved(folder=str(folder))
