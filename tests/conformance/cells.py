"""A scripted policy on two cells, behind the cluster's own switchboard.

Invariant: one Sample per answer that was asked for; `given` counts its tokens that were handed over,
each once, however often the call moved.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from opengyre.cluster.base import Counters
from opengyre.cluster.flights import Flight, Switchboard
from opengyre.cluster.routes import Routes
from opengyre.core.errors import EngineError
from opengyre.core.protocols import Clock
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.engine.scripted import ScriptedEngine
from opengyre.proxy.families.base import Family

CELLS = 2
CAPACITY = 64
"""Executions a cell; a scenario has one."""


@dataclass(frozen=True)
class Say:
    """One answer of the policy, and what happens to it on its way."""

    text: str
    name: str = ""
    """In shapes; its text, if none is given."""
    stopped: bool = True
    """False: no stop token, the answer ends for its length."""
    tokens: tuple[int, ...] = ()
    """Exact ids in place of text."""
    together: int = 1
    """It waits until so many such calls are in flight."""
    move_after: int | None = None
    """After so many tokens the cell leaves for training; the call goes on at the other."""
    hold_after: int | None = None
    """After so many tokens generation stands still until go_on()."""
    error: str = ""
    """The engine fails the call with this."""


@dataclass(eq=False)
class Sample:
    """What became of one answer."""

    say: Say
    prompt_ids: list[int]
    answer: list[int]
    request_ids: list[str]
    """Several, when a restarted proxy went on with it."""
    flight: Flight | None = None
    """The newest one that serves it."""
    given: int = 0
    moved: bool = False
    held: bool = False

    @property
    def name(self) -> str:
        return self.say.name or self.say.text

    @property
    def made(self) -> int:
        """Tokens that the engine made, handed over or not."""
        assert self.flight is not None
        return self.flight.request.first_index + len(self.flight.tokens)


@dataclass(eq=False)
class _Meeting:
    here: int = 0
    all_here: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedCells:
    """Two engines that say what the scenario says; implements core.protocols.Generator."""

    def __init__(
        self, family: Family, speak: Callable[[list[int]], Say], folder: Path, clock: Clock
    ) -> None:
        self.samples: list[Sample] = []
        self.failed: list[str] = []
        """Messages of the errors that were told, those of the scenario itself included."""
        self.counters = Counters()
        self._family, self._speak, self._folder, self._clock = family, speak, folder, clock
        self._by_request: dict[str, Sample] = {}
        self._engines = [ScriptedEngine(self._script) for _ in range(CELLS)]
        self._board = Switchboard(Routes(CAPACITY), self._send, clock, self.counters)
        for cell in range(CELLS):
            self._board.open(cell)
        self._meeting = _Meeting()
        self._going = asyncio.Event()
        self._going.set()
        self._held = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """See core.protocols.Generator."""
        sample = self._sample(request)
        await self._meet(sample.say.together)
        sample.flight = flight = self._board.admit(request)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        position = request.first_index
        try:
            while True:
                chunk = await flight.outbox.get()
                if isinstance(chunk, EngineError):
                    raise chunk
                position += len(chunk.token_ids)
                sample.given = max(sample.given, position)
                yield chunk
                if chunk.finish is not None:
                    return
        finally:
            self._leave(flight)

    async def held(self) -> None:
        """Return once a call stands still for its hold_after."""
        await self._held.wait()

    def go_on(self) -> None:
        """Held calls go on."""
        self._held.clear()
        self._going.set()

    async def close(self) -> None:
        """Stop."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])

    def switch(self, cell: int) -> None:
        """The cell leaves for training and comes back; its calls go on elsewhere with their KV."""
        since = self._clock.now()
        self._board.close(cell)
        blobs: dict[str, Path | None] = {}
        for wire_id in self._board.on(cell):
            path = self._folder / f"{wire_id}.kv"
            blobs[wire_id] = path if self._engines[cell].export_kv(wire_id, path) else None
        self._board.moved(blobs, since)
        self._board.open(cell)
        self._board.check()

    def _sample(self, request: GenerateRequest) -> Sample:
        known = self._unfinished(request) if request.first_index else None
        if known is not None:
            known.request_ids.append(request.request_id)
            self._by_request[request.request_id] = known
            return known
        prompt_ids = list(request.prompt_ids)
        say = self._speak(prompt_ids)
        if say.error:
            self.failed.append(say.error)
            raise EngineError(say.error)
        answer = list(say.tokens) or self._family.encode(say.text)
        if say.stopped and not say.tokens:
            answer.append(self._family.stop_ids[0])
        sample = Sample(say, prompt_ids, answer, [request.request_id])
        self.samples.append(sample)
        self._by_request[request.request_id] = sample
        return sample

    def _unfinished(self, request: GenerateRequest) -> Sample | None:
        """The sample whose first tokens end this prompt."""
        prompt_ids = list(request.prompt_ids)
        prompt, tail = prompt_ids[: -request.first_index], prompt_ids[-request.first_index :]
        for sample in reversed(self.samples):
            if sample.prompt_ids == prompt and sample.answer[: request.first_index] == tail:
                return sample
        return None

    async def _meet(self, wanted: int) -> None:
        if wanted == 1:
            return
        meeting = self._meeting
        meeting.here += 1
        if meeting.here >= wanted:
            self._meeting = _Meeting()
            meeting.all_here.set()
        await meeting.all_here.wait()

    def _script(self, request: GenerateRequest) -> list[int]:
        return self._served(request.request_id).answer

    def _send(self, cell: int, request: GenerateRequest, kv: Path | None) -> None:
        used = self._engines[cell].submit(request, kv)
        self._board.accepted(request.request_id, with_kv=used)

    def _leave(self, flight: Flight) -> None:
        cell = self._board.forget(flight)
        if cell is not None:
            self._engines[cell].cancel(flight.wire_id)

    async def _run(self) -> None:
        while any(engine.busy for engine in self._engines):
            await self._going.wait()
            for engine in self._engines:
                self._board.deliver(engine.step())
            for cell in range(CELLS):
                self._happen(cell)
            await self._clock.sleep(0)

    def _happen(self, cell: int) -> None:
        """Role switches and holds whose time has come on this cell."""
        for wire_id in self._board.on(cell):
            sample = self._served(wire_id)
            say = sample.say
            if say.hold_after is not None and not sample.held and sample.made >= say.hold_after:
                sample.held = True
                self._going.clear()
                self._held.set()
            if say.move_after is not None and not sample.moved and sample.made >= say.move_after:
                sample.moved = True
                self.switch(cell)
                return

    def _served(self, wire_id: str) -> Sample:
        """The switchboard adds the number of the attempt to the request's own id."""
        return self._by_request[wire_id.rpartition(".")[0]]
