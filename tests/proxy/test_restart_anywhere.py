"""The proxy dies, requests are cut and retried, at any moment of any execution: nothing shows.

Each world is one life of the proxy, called as ASGI without a socket; its journal writes, and its
policy speaks, only when the schedule says so, so that every order of things can be tried.
"""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.app.wall import RandomIds, WallClock
from opengyre.core.fakes import MemoryRecorder
from opengyre.core.reasons import FinishReason
from opengyre.core.records import Call, GenerateRequest, TokenChunk
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import DoorReport, Executions
from opengyre.proxy.fake_journal import MemoryJournal
from opengyre.proxy.fakes import ScriptedGenerator, first_asked
from opengyre.proxy.history import History, Node
from opengyre.proxy.restore import reopen
from opengyre.proxy.session import Limits
from tests.proxy.conftest import FAMILY, KEY, fold, tool_call

LIMITS = Limits(
    context_tokens=4000, max_new_tokens=60, max_body_bytes=1 << 20, ping_s=60.0, progress_tokens=4
)
LINES = ["Fine.", tool_call("ls"), tool_call("cat a.py"), "<think>\nHm.\n</think>\n\nSo.", "é\n"]


def line(request: GenerateRequest, *, seeded: bool) -> str:
    """What the policy says: depends on prompt and, if seeded, on the seed."""
    asked = first_asked(request)
    text = f"{list(asked.prompt_ids)} {asked.sampling.seed if seeded else ''}"
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
    return f"{number % 1000} {LINES[number % len(LINES)]}"


@dataclass
class Policy:
    """Gives a chunk each time that it is let."""

    inner: ScriptedGenerator
    free: bool = False
    _turnstile: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def let(self) -> None:
        self._turnstile.release()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[TokenChunk]:
        async for chunk in self.inner.generate(request):
            if not self.free:
                await self._turnstile.acquire()
            yield chunk


@dataclass
class World:
    """One life of the proxy."""

    journal: MemoryJournal
    executions: Executions
    policy: Policy
    app: Any
    asking: dict["asyncio.Future[Any]", asyncio.Event] = field(default_factory=dict)


def born(journal: MemoryJournal, version: int, *, seeded: bool) -> World:
    executions = reopen(FAMILY, journal)
    if "e1" not in executions:
        executions.open("e1", KEY, harness="command", seed=7)
    script = ScriptedGenerator(
        FAMILY, lambda request: line(request, seeded=seeded), chunk_tokens=3, version=version
    )
    policy = Policy(script)
    app = build_app(executions, policy, MemoryRecorder(), FAMILY, LIMITS, WallClock(), RandomIds())
    return World(journal, executions, policy, app)


async def ask(world: World, body: Any, session: str, gone: asyncio.Event) -> Any:
    """One request; None when it was cut, or failed."""
    sent = [{"type": "http.request", "body": json.dumps(body).encode()}]
    got: list[Any] = []

    async def receive() -> Any:
        if sent:
            return sent.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if not gone.is_set():
            got.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/run/e1/v1/messages",
        "query_string": b"",
        "headers": [(b"x-api-key", KEY.encode()), (b"thread-id", session.encode())],
    }
    await world.app(scope, receive, send)
    if not got or got[0]["status"] != 200 or got[-1].get("more_body"):
        return None
    return json.loads(b"".join(part.get("body", b"") for part in got))


@dataclass
class Run:
    """A client with several conversations, and the worlds that it lives through."""

    lengths: list[int]
    seeded: bool
    worlds: list[World] = field(default_factory=list)
    replies: dict[tuple[int, int], Any] = field(default_factory=dict)
    bodies: dict["asyncio.Future[Any]", tuple[Any, str]] = field(default_factory=dict)
    twins: list[tuple["asyncio.Future[Any]", "asyncio.Future[Any]"]] = field(default_factory=list)
    """Requests, and the same ones sent again while they were in flight."""

    @property
    def world(self) -> World:
        return self.worlds[-1]

    def be_born(self, journal: MemoryJournal) -> None:
        self.worlds.append(born(journal, len(self.worlds), seeded=self.seeded))

    async def converse(self, number: int) -> None:
        messages: list[Any] = [{"role": "user", "content": f"Task {number}"}]
        for turn in range(self.lengths[number]):
            told = None
            while told is None:
                told = await self.once({"model": "m", "messages": messages}, f"t{number}")
            self.replies[number, turn] = told
            calls = [block for block in told["content"] if block["type"] == "tool_use"]
            results: list[Any] = [
                {"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}
                for call in calls
            ]
            answer = results or [{"type": "text", "text": f"Go on {turn}"}]
            messages = [
                *messages,
                {"role": "assistant", "content": told["content"]},
                {"role": "user", "content": answer},
            ]

    async def once(self, body: Any, session: str) -> Any:
        task = self.send(body, session)
        await asyncio.wait([task])
        await settle(1)
        return None if task.cancelled() else task.result()

    def send(self, body: Any, session: str) -> "asyncio.Future[Any]":
        gone = asyncio.Event()
        task = asyncio.ensure_future(ask(self.world, body, session, gone))
        self.world.asking[task] = gone
        self.bodies[task] = (body, session)
        return task

    def again(self, which: int) -> None:
        waiting = [task for task in self.world.asking if not task.done()]
        if waiting:
            first = waiting[which % len(waiting)]
            self.twins.append((first, self.send(*self.bodies[first])))

    async def kill(self) -> None:
        """The process is gone, with all that was not durable."""
        world = self.world
        left = world.journal.die()
        jobs = [job.task for door in world.executions.doors for job in door.live]
        dying = [*world.asking, *jobs]
        self.be_born(left)
        for task in dying:
            task.cancel()
        await asyncio.gather(*dying, return_exceptions=True)

    def cut(self, which: int) -> None:
        waiting = [gone for task, gone in self.world.asking.items() if not task.done()]
        if waiting:
            waiting[which % len(waiting)].set()


async def settle(rounds: int = 12) -> None:
    for _ in range(rounds):
        await WallClock().sleep(0)


async def live_through(run: Run, schedule: list[tuple[str, int]]) -> DoorReport:
    run.be_born(MemoryJournal(at_once=False))
    client = asyncio.gather(*(run.converse(number) for number in range(len(run.lengths))))
    for what, which in schedule:
        await settle()
        if what == "speak":
            for _ in range(which + 1):
                run.world.policy.let()
        elif what == "write":
            run.world.journal.commit(which + 1)
        elif what == "cut":
            run.cut(which)
        elif what == "again":
            run.again(which)
        else:
            await run.kill()
    await settle()
    run.world.policy.free = True
    for _ in range(100):
        run.world.policy.let()
    run.world.journal.at_once = True
    run.world.journal.commit(1000)
    await client
    await asyncio.gather(*(again for _, again in run.twins), return_exceptions=True)
    await settle()
    return await run.world.executions.close("e1")


def tree(calls: list[Call]) -> list[Any]:
    """Everything of the calls but names and times, and which of the conversations was the first."""
    return sorted(
        [
            fold(calls, call.call_id),
            call.output_ids,
            str(call.fork if call.reused else None),
            call.finish,
            call.role,
        ]
        for call in calls
    )


def exact(run: Run, calls: list[Call]) -> None:
    """Each call holds what the policy says to its prompt, once, with its versions."""
    for call in calls:
        assert [span.start for span in call.versions] == [
            0,
            *(span.end for span in call.versions[:-1]),
        ][: len(call.versions)]
        assert (call.versions[-1].end if call.versions else 0) == len(call.output_ids)
        assert len(call.output_logprobs) == len(call.output_ids)
        requests = [
            request
            for world in run.worlds
            for request in world.policy.inner.requests
            if request.request_id == call.call_id
        ]
        if call.output_ids:
            said = line(requests[0], seeded=run.seeded)
            whole = [*FAMILY.encode(said), FAMILY.stop_ids[0]]
            assert call.output_ids == whole[: len(call.output_ids)]
            assert (call.finish is FinishReason.ABORT) or call.output_ids == whole


lengths = st.lists(st.integers(1, 3), min_size=1, max_size=3)


def schedules(*disasters: str) -> st.SearchStrategy[list[tuple[str, int]]]:
    usual = ("speak", "speak", "speak", "write", "write", "write")
    step = st.tuples(st.sampled_from([*usual, *disasters]), st.integers(0, 5))
    return st.lists(step, min_size=8, max_size=48)


@settings(max_examples=60, deadline=None)
@given(lengths=lengths, schedule=schedules("kill"))
def test_a_run_whose_proxy_died_has_the_tree_of_one_whose_proxy_did_not(
    lengths: list[int], schedule: list[tuple[str, int]]
) -> None:
    async def both() -> None:
        seeded = len(lengths) == 1  # the order of parallel calls, and so their seeds, is chance
        calm, rough = Run(lengths, seeded), Run(lengths, seeded)
        expected = await live_through(calm, [])
        report = await live_through(rough, schedule)
        calls = rough.world.journal.calls("e1")
        exact(rough, calls)
        assert tree(calls) == tree(calm.world.journal.calls("e1"))
        assert [call.index for call in calls] == list(range(len(calls)))
        assert (report.calls, report.sampled_tokens) == (expected.calls, expected.sampled_tokens)
        assert report.reused_tokens == expected.reused_tokens
        assert report.forks == expected.forks
        # that a conversation's last answer arrived may be forgotten: no request proves it
        unproven = expected.complete_replies - report.complete_replies
        assert 0 <= unproven <= len(lengths)
        assert (report.failed_calls, report.aborted_calls) == (0, 0)
        assert texts(rough) == texts(calm)
        assert rough.world.journal.open_doors() == []

    asyncio.run(both())


@settings(max_examples=60, deadline=None)
@given(lengths=lengths, schedule=schedules("cut", "cut", "again", "again", "kill"))
def test_every_request_is_answered_once_whatever_is_cut_and_asked_again(
    lengths: list[int], schedule: list[tuple[str, int]]
) -> None:
    async def once() -> None:
        run = Run(lengths, seeded=False)
        await live_through(run, schedule)
        calls = run.world.journal.calls("e1")
        exact(run, calls)
        whole = [call for call in calls if call.finish is not FinishReason.ABORT]
        assert len(whole) == sum(lengths)
        assert sorted(f"msg_{call.call_id}" for call in whole) == sorted(
            told["id"] for told in run.replies.values()
        )
        assert len({call.call_id for call in calls}) == len(calls)
        for first, again in run.twins:
            if not first.cancelled() and not again.cancelled() and first.result():
                assert again.result() in (None, first.result())
        assert run.world.journal.open_doors() == []

    asyncio.run(once())


@settings(max_examples=40, deadline=None)
@given(lengths=lengths, schedule=schedules("cut"))
def test_a_history_that_is_read_back_is_the_one_that_was(
    lengths: list[int], schedule: list[tuple[str, int]]
) -> None:
    async def compare() -> None:
        run = Run(lengths, seeded=False)
        run.be_born(MemoryJournal(at_once=False))
        client = asyncio.gather(*(run.converse(number) for number in range(len(run.lengths))))
        for what, which in schedule:
            await settle()
            if what == "cut":
                run.cut(which)
            elif what == "write":
                run.world.journal.commit(which + 1)
            else:
                run.world.policy.let()
        await settle()
        run.world.journal.at_once = True
        run.world.journal.commit(1000)
        await settle()
        (door,) = run.world.executions.doors
        again = reopen(FAMILY, run.world.journal)
        assert shape(again.doors[0].history) == shape(door.history)
        assert again.doors[0].started == door.started
        for one, other in zip(nodes(again.doors[0].history), nodes(door.history), strict=True):
            assert again.doors[0].history.full_ids(one.call_id, one.length) == (
                door.history.full_ids(other.call_id, other.length)
            )
        client.cancel()
        for gone in run.world.asking.values():
            gone.set()
        with contextlib.suppress(asyncio.CancelledError):
            await client
        await run.world.executions.close("e1")
        await asyncio.gather(*run.world.asking)

    asyncio.run(compare())


def texts(run: Run) -> Any:
    return {
        key: [{**block, "id": ""} for block in told["content"]] for key, told in run.replies.items()
    }


def nodes(history: History) -> list[Node]:
    found = [history.root]
    for node in found:
        found += (child for below in node.children.values() for child in below)
    return found


def shape(history: History) -> Any:
    return [
        (
            node.call_id,
            node.place,
            node.length,
            node.thinking,
            node.reply,
            node.stopped,
            node.faithful,
            node.extended,
            [key.hex() for key in node.children],
        )
        for node in nodes(history)
    ]
