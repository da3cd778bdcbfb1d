"""One cell's process as the cluster sees it.

Every command is answered exactly once: by the cell's result, or by CellLostError when the process is
gone or was silent for longer than its commands may take.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import opengyre.core.errors
from opengyre.cluster import wire
from opengyre.cluster.base import CellLostError
from opengyre.core.errors import ClusterError, OpenGyreError, UserError
from opengyre.core.protocols import Clock
from opengyre.core.records import TokenChunk

PATIENCE_S = 60.0
"""A cell that says nothing for so long while something is asked of it is wedged: one engine step or
weight load takes seconds at most."""
LONG_PATIENCE_S = 1800.0
"""The same for forward-backwards, optimiser steps, checkpoints and model loading on a slow machine."""
LONG = (wire.Setup, wire.Accumulate, wire.CoreStep, wire.Save)
"""Commands that get LONG_PATIENCE_S."""
STOP_S = 5.0
"""A cell that does not exit so soon after Stop is killed."""
PROGRAM = "opengyre.cluster.cell"
"""Module that a cell's process runs."""

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=wire.Result)
Then = Callable[[wire.Result | CellLostError], None]


@dataclass(frozen=True)
class _Pending:
    command: type[wire.Command]
    asked_at: float
    then: Then


class CellLink:
    """Starts the process, sends commands, passes its chunks on."""

    def __init__(
        self,
        index: int,
        clock: Clock,
        on_chunks: Callable[[list[TokenChunk]], None],
        on_lost: Callable[[int], None],
        program: str = PROGRAM,
    ) -> None:
        self.index = index
        self.alive = False
        self._clock, self._on_chunks, self._on_lost = clock, on_chunks, on_lost
        self._program = program
        self._pending: dict[int, _Pending] = {}
        self._asked = 0
        self._heard_at = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Process id; raises AssertionError before start()."""
        assert self._process is not None
        return self._process.pid

    async def start(self, cpus: list[int], threads: int, log: Path) -> None:
        """Start the process, pinned to its CPUs."""
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", self._program),
                *("--fd", str(theirs.fileno()), "--cpus", ",".join(map(str, cpus))),
                pass_fds=[theirs.fileno()],
                env=_environment(threads),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self.alive = True
        self._heard_at = self._clock.now()
        self._reading = asyncio.create_task(self._read(reader))

    def post(self, command: wire.Command, then: Then) -> None:
        """Send a command; `then` gets its result, at once when the cell is gone.

        Raises ClusterError for one that is too large to send.
        """
        if not self.alive or self._writer is None:
            then(CellLostError(self.index, type(command).__name__))
            return
        frame = wire.to_frame(wire.Ask(self._asked + 1, command))
        self._asked += 1
        self._pending[self._asked] = _Pending(type(command), self._clock.now(), then)
        self._writer.write(frame)

    async def ask(self, command: wire.Command, wanted: type[R]) -> R:
        """Send a command and wait. Raises CellLostError, or what the cell's handler raised."""
        future: asyncio.Future[wire.Result] = asyncio.get_running_loop().create_future()

        def then(result: wire.Result | CellLostError) -> None:
            if future.done():
                return
            if isinstance(result, CellLostError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.post(command, then)
        result = await future
        if not self.alive:  # it answered and died: whatever it then held is gone
            raise CellLostError(self.index, type(command).__name__)
        if isinstance(result, wire.Failure):
            raise _error(self.index, result)
        assert isinstance(result, wanted)
        return result

    def probe(self) -> None:
        """Ping an idle cell; declare a silent one lost."""
        if not self.alive:
            return
        if not self._pending:
            self.post(wire.Ping(), lambda _: None)
            return
        first = min(p.asked_at for p in self._pending.values())
        long = any(issubclass(p.command, LONG) for p in self._pending.values())
        silent = self._clock.now() - max(first, self._heard_at)
        if silent > (LONG_PATIENCE_S if long else PATIENCE_S):
            logger.warning("cell %d says nothing for %.0f s", self.index, silent)
            self.fail()

    async def close(self) -> None:
        """End the process: politely, then not."""
        if self._process is None or self._writer is None:
            return
        if self.alive:
            self.post(wire.Stop(), lambda _: None)
            self.alive = False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_S)
        self._kill()
        await self._process.wait()
        if self._reading is not None:
            await self._reading
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                length = wire.body_length(await reader.readexactly(wire.HEADER_BYTES))
                self._heard(wire.read_report(await reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError, ClusterError) as error:
            logger.info("cell %d: %s", self.index, error)
        finally:
            self.fail()

    def _heard(self, report: wire.Report) -> None:
        self._heard_at = self._clock.now()
        if isinstance(report, wire.Chunks):
            self._on_chunks(report.chunks)
        else:
            self._pending.pop(report.number).then(report.result)

    def fail(self) -> None:
        """The cell is lost for good: a wedged or half-switched one must not come back and speak."""
        self._kill()
        was_alive, self.alive = self.alive, False
        if was_alive:
            self._on_lost(self.index)
        pending, self._pending = self._pending, {}
        for p in pending.values():
            p.then(CellLostError(self.index, p.command.__name__))


def _environment(threads: int) -> dict[str, str]:
    """OpenMP reads these when torch is imported; passive waiting leaves the CPU to other cells."""
    return os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}


def _error(cell: int, failure: wire.Failure) -> OpenGyreError:
    kind = getattr(opengyre.core.errors, failure.kind, None)
    message = f"cell {cell}: {failure.message}"
    if isinstance(kind, type) and issubclass(kind, OpenGyreError) and kind is not UserError:
        error: OpenGyreError = kind(message)
        return error
    return ClusterError(f"{message} ({failure.kind})")
