"""Calls in flight: which cell serves each one, and what happens when that cell goes.

A flight is finished, waiting, or on exactly one serving cell. Tokens reach its consumer once and in
order, however often it moves: it goes on as prompt + tokens so far, drawn from the next index.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from opengyre.cluster.base import Counters, Move
from opengyre.cluster.routes import Routes
from opengyre.core.errors import EngineError
from opengyre.core.protocols import Clock
from opengyre.core.records import GenerateRequest, TokenChunk

MAX_LOST_CELLS = 3
"""A request that was on so many cells when they died is refused: it may be what kills them."""

Send = Callable[[int, GenerateRequest, Path | None], None]
"""(cell, request as the cell shall see it, KV blob)."""


@dataclass(eq=False)
class Flight:
    """One call."""

    request: GenerateRequest
    outbox: asyncio.Queue[TokenChunk | EngineError] = field(default_factory=asyncio.Queue)
    tokens: list[int] = field(default_factory=list)
    cell: int | None = None
    wire_id: str = ""
    """Names this attempt: nothing of an earlier one, or of a namesake, is taken for it."""
    kv: Path | None = None
    """Blob to go on from; ours to unlink."""
    interrupted_at: float | None = None
    """Set from an interruption to the next token."""
    resumed_with_kv: bool | None = None
    """Whether the interrupted flight's new cell has its KV; None until that cell answers."""
    lost_cells: int = 0
    untold: list[int] = field(default_factory=list)
    """Cells that it was sent to and that its consumer does not know of."""

    def next_request(self) -> GenerateRequest:
        """What is left to do."""
        return msgspec.structs.replace(
            self.request,
            request_id=self.wire_id,
            prompt_ids=[*self.request.prompt_ids, *self.tokens],
            first_index=self.request.first_index + len(self.tokens),
        )

    def drop_kv(self) -> None:
        """Go on from the tokens alone."""
        if self.kv is not None:
            self.kv.unlink(missing_ok=True)
            self.kv = None


class Switchboard:
    """All flights. Synchronous: a flight is never between two states when something else runs."""

    def __init__(self, routes: Routes, send: Send, clock: Clock, counters: Counters) -> None:
        self.routes = routes
        self.paused = False
        self._send, self._clock, self._counters = send, clock, counters
        self._serving: set[int] = set()
        self._waiting: deque[Flight] = deque()
        self._flying: dict[str, Flight] = {}
        self._attempts = itertools.count(1)

    def admit(self, request: GenerateRequest) -> Flight:
        """Start a flight, at once if a cell serves."""
        flight = Flight(request)
        self._waiting.append(flight)
        self.dispatch()
        return flight

    def open(self, cell: int) -> None:
        """The cell serves from now on."""
        self._serving.add(cell)
        self.dispatch()

    def close(self, cell: int) -> None:
        """The cell gets no new flights; those that it has go on until moved() or lost()."""
        self._serving.discard(cell)

    def dispatch(self) -> None:
        """Send every waiting flight to a cell, oldest first."""
        while self._waiting and self._serving and not self.paused:
            flight = self._waiting.popleft()
            flight.cell = self.routes.choose(flight.request.execution_id, self._serving)
            flight.untold.append(flight.cell)
            flight.wire_id = f"{flight.request.request_id}.{next(self._attempts)}"
            self._flying[flight.wire_id] = flight
            self._send(flight.cell, flight.next_request(), flight.kv)

    def accepted(self, wire_id: str, *, with_kv: bool) -> None:
        """The flight's cell has it; the blob has served."""
        flight = self._flying.get(wire_id)
        if flight is None:
            return
        flight.drop_kv()
        if flight.interrupted_at is None:
            return
        flight.resumed_with_kv = with_kv
        if with_kv:
            self._counters.moved_with_kv += 1
        else:
            self._counters.recomputed += 1

    def refused(self, wire_id: str, message: str) -> None:
        """The flight's cell cannot serve it: the consumer gets an EngineError."""
        flight = self._flying.pop(wire_id, None)
        if flight is not None:
            self._end(flight, message)

    def deliver(self, chunks: list[TokenChunk]) -> None:
        """Tokens from a cell; those of forgotten flights are dropped."""
        for chunk in chunks:
            flight = self._flying.get(chunk.request_id)
            if flight is None:
                continue
            flight.tokens += chunk.token_ids
            flight.outbox.put_nowait(self._for_consumer(flight, chunk))
            if chunk.finish is not None:
                del self._flying[chunk.request_id]

    def _for_consumer(self, flight: Flight, chunk: TokenChunk) -> TokenChunk:
        cells, flight.untold = flight.untold, []
        chunk = msgspec.structs.replace(chunk, request_id=flight.request.request_id, cells=cells)
        if flight.interrupted_at is None or flight.resumed_with_kv is None or flight.cell is None:
            return chunk
        with_kv = flight.resumed_with_kv
        self._counters.moves.append(
            Move(
                request_id=flight.request.request_id,
                cell=flight.cell,
                with_kv=with_kv,
                tokens=len(flight.request.prompt_ids) + len(flight.tokens) - len(chunk.token_ids),
                stall_s=self._clock.now() - flight.interrupted_at,
            )
        )
        flight.interrupted_at = flight.resumed_with_kv = None
        return msgspec.structs.replace(
            chunk, moves_with_kv=int(with_kv), moves_recomputed=int(not with_kv)
        )

    def on(self, cell: int) -> list[str]:
        """Wire ids of the cell's flights."""
        return [wire_id for wire_id, flight in self._flying.items() if flight.cell == cell]

    def moved(self, blobs: dict[str, Path | None], since: float) -> None:
        """A cell gave up its flights (by wire id) at `since`; each goes on elsewhere."""
        for wire_id, kv in blobs.items():
            flight = self._flying.pop(wire_id, None)
            if flight is not None:
                flight.drop_kv()
                flight.kv = kv
                self._interrupt(flight, since)
            elif kv is not None:
                kv.unlink(missing_ok=True)
        self.dispatch()

    def lost(self, cell: int) -> None:
        """A cell is gone; its flights go on elsewhere from their tokens."""
        self.close(cell)
        for wire_id in self.on(cell):
            flight = self._flying.pop(wire_id)
            flight.lost_cells += 1
            if flight.lost_cells >= MAX_LOST_CELLS:
                self._end(flight, f"{flight.lost_cells} cells died while they served this request")
            else:
                self._interrupt(flight, self._clock.now())
        self.dispatch()

    def _interrupt(self, flight: Flight, since: float) -> None:
        flight.cell = None
        flight.resumed_with_kv = None
        if flight.interrupted_at is None:
            flight.interrupted_at = since
        self._waiting.append(flight)

    def drop_stale_kv(self) -> None:
        """New weights are served: KV of waiting flights is of no use any more."""
        for flight in self._waiting:
            flight.drop_kv()

    def forget(self, flight: Flight) -> int | None:
        """The consumer wants no more. Returns the cell that must be told, if any."""
        if self._flying.pop(flight.wire_id, None) is flight:
            self._counters.cancelled += 1
            flight.drop_kv()
            return flight.cell
        if flight in self._waiting:
            self._counters.cancelled += 1
            self._waiting.remove(flight)
            flight.drop_kv()
        return None

    def end_all(self, message: str) -> None:
        """Every consumer gets an EngineError."""
        for flight in [*self._waiting, *self._flying.values()]:
            self._end(flight, message)
        self._waiting.clear()
        self._flying.clear()

    @staticmethod
    def _end(flight: Flight, message: str) -> None:
        flight.drop_kv()
        flight.outbox.put_nowait(EngineError(message))

    def check(self) -> None:
        """Raises AssertionError when the invariant does not hold."""
        waiting = set(map(id, self._waiting))
        assert len(waiting) == len(self._waiting)
        for wire_id, flight in self._flying.items():
            assert wire_id == flight.wire_id
            assert flight.cell is not None
            assert id(flight) not in waiting
        assert all(f.cell is None for f in self._waiting)
        assert not (self._waiting and self._serving and not self.paused)
