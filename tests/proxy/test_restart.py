"""A proxy that is stopped, or dies, and another one that goes on with its executions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from opengyre.app.wall import RandomIds, WallClock
from opengyre.core.reasons import Role
from opengyre.core.records import GenerateRequest, TokenChunk, VersionSpan
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import Executions
from opengyre.proxy.fakes import ScriptedGenerator
from opengyre.proxy.restore import reopen
from opengyre.proxy.serving import Serving, serve
from opengyre.proxy.session import Limits
from opengyre.store.run import RunStore
from tests.proxy.conftest import FAMILY, KEY, fold, tool_call

HEADERS = {"x-api-key": KEY}
LIMITS = Limits(context_tokens=4000, max_new_tokens=400, max_body_bytes=1 << 20, ping_s=60.0)
LONG = "A long answer of many words, so many that some are written down on the way. " * 4


class Halting:
    """Stops for ever after some tokens of each call."""

    def __init__(self, inner: ScriptedGenerator, after: int) -> None:
        self.inner, self._after = inner, after
        self.halted = asyncio.Event()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        given = 0
        async for chunk in self.inner.generate(request):
            yield chunk
            given += len(chunk.token_ids)
            if given >= self._after:
                self.halted.set()
                await asyncio.Event().wait()


@dataclass
class Proxy:
    """One life of a proxy."""

    store: RunStore
    executions: Executions
    generator: ScriptedGenerator
    serving: Serving
    halting: Halting

    async def ask(self, sent: Any, **more: Any) -> Any:
        url = f"http://127.0.0.1:{self.serving.port}/run/e1/v1/messages"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=sent, headers=HEADERS | more) as response,
        ):
            return await response.json()

    async def stop(self) -> None:
        await self.executions.suspend()
        await self.serving.stop()
        self.store.close()


Live = Callable[..., Awaitable[Proxy]]


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    """Begins a life of the proxy of one store."""
    async with AsyncExitStack() as stack:

        async def begin(
            script: Any,
            *,
            version: int = 0,
            halt_after: int = 1 << 30,
            harness: str = "command",
            cells: tuple[int, ...] = (),
        ) -> Proxy:
            store = RunStore(tmp_path / "run.sqlite")
            stack.callback(store.close)
            executions = reopen(FAMILY, store.journal)
            if "e1" not in executions:
                executions.open("e1", KEY, harness=harness, seed=7)
            generator = ScriptedGenerator(FAMILY, script, version=version, cells=cells)
            halting = Halting(generator, halt_after)
            app = build_app(executions, halting, store, FAMILY, LIMITS, WallClock(), RandomIds())
            serving = await serve(app, port=0)
            stack.push_async_callback(serving.stop)
            return Proxy(store, executions, generator, serving, halting)

        yield begin


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def body(*messages: Any) -> dict[str, Any]:
    return {"model": "m", "messages": list(messages)}


def echo(told: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": told["content"]}


async def test_an_unfinished_answer_goes_on_from_its_tokens_under_the_version_of_the_time(
    live: Live,
) -> None:
    first = await live([LONG], version=3, halt_after=40, cells=(0, 1))
    asking = asyncio.ensure_future(first.ask(body(user("Hi"))))
    await first.halting.halted.wait()
    await first.stop()
    assert (await asking)["type"] == "error"
    second = await live([LONG], version=4, cells=(2,))
    told = await second.ask(body(user("Hi")))
    assert told["content"][0]["text"] == LONG
    (request,) = second.generator.requests
    (call,) = second.store.calls("e1")
    assert request.first_index == 40
    assert request.prompt_ids == call.suffix_ids + call.output_ids[:40]
    assert call.output_ids == [*FAMILY.encode(LONG), FAMILY.stop_ids[0]]
    whole = len(call.output_ids)
    assert call.versions == [VersionSpan(3, 0, 40), VersionSpan(4, 40, whole)]
    assert call.cells == [0, 1, 2]
    assert len(call.output_logprobs) == whole
    assert request.request_id == first.generator.requests[0].request_id == call.call_id
    report = await second.executions.close("e1")
    assert (report.calls, report.aborted_calls, report.complete_replies) == (1, 0, 1)
    await second.store.journal.settled()
    assert second.store.journal.open_doors() == []


async def test_an_answer_that_was_not_delivered_is_the_same_after_the_restart(live: Live) -> None:
    first = await live([tool_call("ls")])
    first.generator.go.clear()
    asking = asyncio.ensure_future(first.ask(body(user("Hi"))))
    await first.generator.waiting.wait()
    job = next(iter(first.executions.doors[0].jobs.values()))
    first.generator.go.set()
    asking.cancel()
    await job.finished()
    await first.stop()
    second = await live([])
    told = await second.ask(body(user("Hi")))
    assert told["id"] == f"msg_{job.call_id}"
    answer = job.task.result()
    assert told["content"][-1]["id"] == answer.message.calls[0].call_id
    assert second.generator.requests == []


async def test_what_comes_after_a_restart_goes_on_from_what_came_before(live: Live) -> None:
    first = await live([tool_call("ls")])
    told = await first.ask(body(user("Hi")))
    result = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": told["content"][0]["id"], "content": "a.py"}
        ],
    }
    await first.stop()
    second = await live(["Done."])
    await second.ask(body(user("Hi"), echo(told), result))
    one, two = second.store.calls("e1")
    assert two.parent_id == one.call_id
    assert two.fork is None
    assert two.reused == len(one.suffix_ids) + len(one.output_ids)
    assert (
        second.generator.requests[0].prompt_ids
        == fold([one, two], two.call_id)[: -len(two.output_ids)]
    )


SUMMARISER = {"system": "You are a context summarization agent."}
PARENT = {"x-parent-session-id": "m"}


@pytest.mark.parametrize(
    ("more", "role"), [({}, Role.MAIN_SUMMARY), (PARENT, Role.SUB_AGENT_SUMMARY)]
)
async def test_a_session_keeps_its_role_over_a_restart(
    live: Live, more: dict[str, str], role: Role
) -> None:
    """A compaction of OpenCode says whose it is by its session alone."""
    session = {"x-session-id": "s"}
    first = await live(["Fine."], harness="opencode")
    await first.ask(body(user("Hi")), **session, **more)
    await first.stop()
    second = await live(["A summary."], harness="opencode")
    await second.ask(body(user("All that was said.")) | SUMMARISER, **session)
    assert [call.role for call in second.store.calls("e1")][1:] == [role]


async def test_a_session_whose_first_answer_is_unfinished_has_its_role_too(live: Live) -> None:
    first = await live([LONG], halt_after=40, harness="opencode")
    asking = asyncio.ensure_future(first.ask(body(user("Hi")), **{"x-session-id": "s"}, **PARENT))
    await first.halting.halted.wait()
    await first.stop()
    await asking
    second = await live([LONG, "A summary."], harness="opencode")
    await second.ask(body(user("All of it.")) | SUMMARISER, **{"x-session-id": "s"})
    (told,) = [call for call in second.store.calls("e1") if call.role is not Role.SUB_AGENT]
    assert told.role is Role.SUB_AGENT_SUMMARY
