"""A whole proxy on a real local port, with a scripted policy behind it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from opengyre.app.wall import WallClock
from opengyre.core.fakes import CountingIds, MemoryRecorder
from opengyre.core.protocols import Clock, Journal, Recorder
from opengyre.core.records import Call, GenerateRequest
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import Executions
from opengyre.proxy.fakes import Line, ScriptedGenerator
from opengyre.proxy.families.base import Family
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.serving import Serving, serve
from opengyre.proxy.session import Limits
from tests.proxy.tokenizers_for_tests import small_tokenizer

FAMILY = Qwen3Family(small_tokenizer())
KEY = "secret-1"


@dataclass
class World:
    """One proxy, one open execution."""

    executions: Executions
    generator: ScriptedGenerator
    recorder: Recorder
    calls: list[Call]
    serving: Serving

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.serving.port}/run/e1"


Script = Iterable[Line] | Callable[[GenerateRequest], Line]
Start = Callable[..., Awaitable[World]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Call it with the script; see World."""
    async with AsyncExitStack() as stack:

        async def begin(
            script: Script,
            *,
            harness: str = "command",
            recorder: Recorder | None = None,
            clock: Clock | None = None,
            context_tokens: int = 4000,
            max_body_bytes: int = 1 << 20,
            ping_s: float = 60.0,
            max_live_calls: int = 256,
            family: Family = FAMILY,
            journal: Journal | None = None,
            cells: Sequence[int] = (),
        ) -> World:
            memory = MemoryRecorder()
            executions = Executions(family, journal)
            executions.open("e1", KEY, harness=harness, seed=7)
            generator = ScriptedGenerator(family, script, cells=cells)
            limits = Limits(
                context_tokens=context_tokens,
                max_new_tokens=400,
                max_body_bytes=max_body_bytes,
                ping_s=ping_s,
                max_live_calls=max_live_calls,
            )
            app = build_app(
                executions,
                generator,
                recorder or memory,
                family,
                limits,
                clock or WallClock(),
                CountingIds(),
            )
            serving = await serve(app, port=0)
            stack.push_async_callback(serving.stop)
            return World(executions, generator, recorder or memory, memory.calls, serving)

        yield begin


def tool_call(command: str) -> str:
    return f'<tool_call>\n{{"name": "Bash", "arguments": {{"command": "{command}"}}}}\n</tool_call>'


def fold(calls: list[Call], call_id: str) -> list[int]:
    """prompt + output, from the records alone."""
    call = next(call for call in calls if call.call_id == call_id)
    before = fold(calls, call.parent_id)[: call.reused] if call.parent_id else []
    return before + call.suffix_ids + call.output_ids
