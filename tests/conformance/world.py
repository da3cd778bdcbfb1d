"""One proxy with everything behind it, one open execution, and the program that calls.

Invariant: what a scenario asserts comes from the store's file and from the engine's side.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path

from starlette.types import Receive, Scope, Send

from opengyre.app.wall import WallClock
from opengyre.config.run import SandboxSection
from opengyre.core.fakes import CountingIds
from opengyre.core.records import Call
from opengyre.harness.base import Harness, HarnessOutcome, HarnessRun
from opengyre.harness.run import run_harness
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import DoorReport
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.restore import reopen
from opengyre.proxy.serving import serve
from opengyre.proxy.session import Limits
from opengyre.sandbox.make import make_sandbox
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree
from opengyre.tree.roles import classify
from tests.conformance.cells import Say, ScriptedCells
from tests.conformance.check import TALLY, check, shape
from tests.conformance.faults import Fault, Faults
from tests.conformance.scenario import Scenario, Seen

EXECUTION, KEY = "exec-1", "key-of-exec-1"
MODEL = "policy"
RUN_S = 120.0
"""Longest run of a program in a scenario."""


class World:
    """See the package's docstring for what scenarios use of it."""

    def __init__(
        self,
        family: Qwen3Family,
        scenario: Scenario,
        folder: Path,
        *,
        harness: str,
        faults: Sequence[Fault] = (),
        limits: Limits,
        train_unknown: bool = False,
    ) -> None:
        self.folder, self.harness = folder, harness
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.socket.parent.mkdir()
        self.clock = WallClock()
        self.scenario = scenario
        self.family, self._limits = family, limits
        self.cells = ScriptedCells(family, self._speak, folder, self.clock)
        self.ids = CountingIds()
        self.faults = Faults(_nothing, faults)
        self._classify = partial(classify, unknown_as_main=train_unknown)
        self._checked = False

    async def start(self, port: int = 0) -> "World":
        """Listen."""
        self.store = RunStore(self.folder / "run.sqlite")
        self.executions = reopen(self.family, self.store.journal)
        if EXECUTION not in self.executions:
            self.executions.open(EXECUTION, KEY, harness=self.harness, seed=7)
        self.faults.app = build_app(
            self.executions,
            self.cells,
            self.store,
            self.family,
            self._limits,
            self.clock,
            self.ids,
            classify=self._classify,
        )
        self.serving = await serve(self.faults, socket_path=self.socket, port=port)
        return self

    async def stop(self) -> None:
        """Let everything end."""
        await self.serving.stop()
        await self.cells.close()
        if self._checked:
            TALLY.add(self.calls())
        self.store.close()

    async def restart(self) -> None:
        """The proxy stops in mid-run; another one takes its store and its addresses over."""
        port = self.serving.port
        assert port is not None
        await self.executions.suspend()
        await self.serving.stop()
        self.store.close()
        await self.start(port)

    async def through_a_restart(
        self, running: Coroutine[None, None, HarnessOutcome]
    ) -> HarnessOutcome:
        """The proxy restarts while the program waits for the answer with a hold_after."""
        program = asyncio.ensure_future(running)
        held = asyncio.ensure_future(self.cells.held())
        await asyncio.wait([program, held], return_when=asyncio.FIRST_COMPLETED)
        if not program.done():
            await self.restart()
            self.cells.go_on()
        held.cancel()
        return await program

    @property
    def socket(self) -> Path:
        return self.folder / "door" / "proxy.sock"

    @property
    def url(self) -> str:
        """For clients without a sandbox."""
        return f"http://127.0.0.1:{self.serving.port}/run/{EXECUTION}"

    async def run(
        self,
        harness: Harness,
        instruction: str,
        *,
        args: Sequence[str] = (),
        env: dict[str, str] | None = None,
        files: dict[str, str] | None = None,
        timeout_s: float = RUN_S,
    ) -> HarnessOutcome:
        """The program works in self.workspace until it ends."""
        for name, text in (files or {}).items():
            (self.workspace / name).parent.mkdir(parents=True, exist_ok=True)
            (self.workspace / name).write_text(text)
        run = HarnessRun(
            execution_id=EXECUTION,
            instruction=instruction,
            workspace=self.workspace,
            socket=self.socket,
            base_path=f"/run/{EXECUTION}",
            key=KEY,
            model=MODEL,
            timeout_s=timeout_s,
            args=list(args),
            env=env or {},
        )
        return await run_harness(harness, run, make_sandbox(SandboxSection(), self.clock))

    def calls(self) -> list[Call]:
        """As the store has them."""
        return self.store.calls(EXECUTION)

    def tree(self) -> ExecutionTree:
        return ExecutionTree(self.calls())

    def report(self) -> DoorReport:
        return self.executions.report(EXECUTION)

    def check(self) -> None:
        """Every token; see check.py."""
        check(self.calls(), self.cells.samples)
        self._checked = True

    def shape(self) -> list[str]:
        """See the package's docstring."""
        return shape(self.calls(), self.cells.samples)

    def _speak(self, prompt_ids: list[int]) -> Say:
        return self.scenario(Seen(self.family.decode(prompt_ids)))


async def _nothing(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise AssertionError("the proxy is not there yet")


def clean(outcome: HarnessOutcome) -> None:
    """The program ended well; else its last words are shown."""
    assert outcome.exit_code == 0, (outcome.stdout_tail[-2000:], outcome.stderr_tail[-2000:])
