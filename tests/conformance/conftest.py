"""A world that ends with its test."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.session import Limits
from tests.conformance import programs
from tests.conformance.check import TALLY
from tests.conformance.faults import Fault
from tests.conformance.scenario import Scenario
from tests.conformance.world import World


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the checked trees hold, all scenarios together."""
    if TALLY.executions:
        terminalreporter.section("recorded trees")
        for line in TALLY.lines():
            terminalreporter.write_line(line)


Start = Callable[..., Awaitable[World]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Call it with a scenario; see World."""
    async with AsyncExitStack() as stack:

        async def begin(
            scenario: Scenario,
            *,
            harness: str,
            faults: Sequence[Fault] = (),
            family: Qwen3Family | None = None,
            context_tokens: int = 200_000,
            max_new_tokens: int = 100_000,
            ping_s: float = 5.0,
            train_unknown: bool = False,
        ) -> World:
            limits = Limits(
                context_tokens=context_tokens,
                max_new_tokens=max_new_tokens,
                max_body_bytes=1 << 26,
                ping_s=ping_s,
            )
            world = World(
                family or Qwen3Family(programs.tokenizer()),
                scenario,
                tmp_path,
                harness=harness,
                faults=faults,
                limits=limits,
                train_unknown=train_unknown,
            )
            await world.start()
            stack.push_async_callback(world.stop)
            return world

        yield begin
