"""A proxy as a program of its own, for tests that kill it: STORE SOCKET VERSION."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from opengyre.app.wall import RandomIds, WallClock
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.proxy.app import build_app
from opengyre.proxy.fakes import ScriptedGenerator
from opengyre.proxy.restore import reopen
from opengyre.proxy.serving import serve
from opengyre.proxy.session import Limits
from opengyre.store.run import RunStore
from tests.proxy.conftest import FAMILY, KEY, tool_call

LIMITS = Limits(
    context_tokens=8000,
    max_new_tokens=400,
    max_body_bytes=1 << 20,
    progress_tokens=8,
    progress_s=0.02,
)


def line(request: GenerateRequest) -> str:
    """Depends on the prompt and the seed."""
    text = f"{list(request.prompt_ids)} {request.sampling.seed}"
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
    words = f"{number} is a number of some digits. " * (1 + number % 3)
    return words + (tool_call(f"echo {number}") if number % 2 else "")


class Slow:
    """A few tokens at a time."""

    def __init__(self, inner: ScriptedGenerator, clock: WallClock) -> None:
        self._inner, self._clock = inner, clock

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        async for chunk in self._inner.generate(request):
            await self._clock.sleep(0.003)
            yield chunk


async def main(path: Path, socket: Path, version: int) -> None:
    store, clock = RunStore(path), WallClock()
    executions = reopen(FAMILY, store.journal)
    if "e1" not in executions:
        executions.open("e1", KEY, harness="command", seed=7)
    generator = Slow(ScriptedGenerator(FAMILY, line, version=version), clock)
    app = build_app(executions, generator, store, FAMILY, LIMITS, clock, RandomIds())
    await serve(app, socket_path=socket)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
