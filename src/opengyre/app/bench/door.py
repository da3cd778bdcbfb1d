"""A proxy in a process of its own, for benches to call: the real door and store, an instant engine.

Invariant: everything between the socket and the store is what a run has; only the engine is not one.
Its answers are a fixed tool call of the length that was asked for, after the wait that was asked for.
"""

import asyncio
import os
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer

from opengyre.app.garbage import short_collections
from opengyre.app.wall import WallClock
from opengyre.core.fakes import CountingIds
from opengyre.core.protocols import Clock
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import Executions
from opengyre.proxy.families.base import Family
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.serving import serve
from opengyre.proxy.session import Limits
from opengyre.store.run import RunStore

KEY = "bench"
MOST_TOKENS = 1 << 21
MOST_BYTES = 1 << 26
"""Twice the longest history that is measured, and room to spare for its body."""
PROBE_S = 0.005
"""How often the probe wants the event loop."""
LATE_S = 0.05
"""What nothing may block the event loop for."""
ANSWER = (
    '<tool_call>\n{"name": "Bash", "arguments": {"command": "sed -n 1,80p main.py"}}\n</tool_call>'
)


class DoorSettings(Struct, kw_only=True):
    """Made by the bench; read by the door's process."""

    tokenizer: str
    folder: str
    executions: int = 1
    engine_s: float = 0.0
    """How long each answer takes."""
    core: int | None = None
    """The only CPU that it may use."""


class DoorStats(Struct, kw_only=True):
    """Since they were asked for last. Made by the door's process; read by the bench."""

    worst_lag_ms: float
    """Longest time by which the event loop came late to the probe, other processes' doing included."""
    worst_slice_ms: float
    """Longest CPU time of the event loop's thread between two turns of the probe."""
    over_50_ms: int
    most_in_flight: int
    prompt_tokens: int
    encoded_tokens: int
    """Tokens that the family encoded."""
    lines: int
    """Conversations that readers remember."""


class InstantEngine:
    """Answers with the same tokens always."""

    def __init__(self, family: Family, clock: Clock, seconds: float) -> None:
        self._ids = [*family.encode(ANSWER), family.stop_ids[0]]
        self._clock, self._seconds = clock, seconds
        self.in_flight = self.most_in_flight = self.prompt_tokens = 0

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        """See core.protocols.Generator."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.prompt_tokens += len(request.prompt_ids)
        try:
            if self._seconds:
                await self._clock.sleep(self._seconds)
            yield TokenChunk(
                request_id=request.request_id,
                token_ids=self._ids,
                logprobs=[-0.25] * len(self._ids),
                version=0,
                finish=FinishReason.STOP,
            )
        finally:
            self.in_flight -= 1


class CountingFamily(Qwen3Family):
    """Counts what it encodes."""

    encoded = 0

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        self.encoded += len(ids)
        return ids


class Probe:
    """Wants the event loop every few milliseconds and notes how late it comes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.worst_lag_s = self.worst_slice_s = 0.0
        self.late = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            before, cpu = self._clock.now(), time.thread_time()
            await self._clock.sleep(PROBE_S)
            lag = self._clock.now() - before - PROBE_S
            self.worst_lag_s = max(self.worst_lag_s, lag)
            self.worst_slice_s = max(self.worst_slice_s, time.thread_time() - cpu)
            self.late += lag > LATE_S


async def run_door(settings: DoorSettings) -> None:
    """Serve until the standard input ends; the first line of output is the port."""
    family = CountingFamily(Tokenizer.from_file(settings.tokenizer))
    clock = WallClock()
    probe = Probe(clock)
    engine = InstantEngine(family, clock, settings.engine_s)
    executions = Executions(family)
    doors = [
        executions.open(f"e{number}", KEY, harness="command", seed=number)
        for number in range(settings.executions)
    ]
    limits = Limits(
        context_tokens=MOST_TOKENS, max_new_tokens=1024, max_body_bytes=MOST_BYTES, ping_s=600.0
    )

    async def stats(_request: Request) -> Response:
        told = DoorStats(
            worst_lag_ms=1e3 * probe.worst_lag_s,
            worst_slice_ms=1e3 * probe.worst_slice_s,
            over_50_ms=probe.late,
            most_in_flight=engine.most_in_flight,
            prompt_tokens=engine.prompt_tokens,
            encoded_tokens=family.encoded,
            lines=sum(len(door.reader.lines) for door in doors),
        )
        probe.worst_lag_s = probe.worst_slice_s = 0.0
        probe.late = engine.most_in_flight = engine.prompt_tokens = family.encoded = 0
        return JSONResponse(msgspec.to_builtins(told))

    with RunStore(Path(settings.folder) / "run.sqlite") as store:
        app = build_app(executions, engine, store, family, limits, clock, CountingIds())
        app.routes.append(Route("/stats", stats))
        serving = await serve(app, port=0)
        print(serving.port, flush=True)
        async with short_collections(clock, lambda: executions.idle):
            probing = asyncio.ensure_future(probe.run())
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            probing.cancel()
            await serving.stop()


def _main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=DoorSettings)
    if settings.core is not None:
        os.sched_setaffinity(0, {settings.core})
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(run_door(settings))


if __name__ == "__main__":
    _main()
