"""An engine on its own thread serves one event loop."""

import asyncio
from contextlib import aclosing

import pytest

from opengyre.app.wall import WallClock
from opengyre.core.errors import EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, Sampling, TokenChunk
from opengyre.engine.scripted import ScriptedEngine
from opengyre.engine.threaded import ThreadedEngine


def a_request(name: str, tokens: int) -> GenerateRequest:
    sampling = Sampling(max_new_tokens=tokens, stop_ids=[], seed=0)
    return GenerateRequest(request_id=name, execution_id="e", prompt_ids=[1, 2], sampling=sampling)


async def chunks_of(engine: ThreadedEngine, request: GenerateRequest) -> list[TokenChunk]:
    async with aclosing(engine.generate(request)) as stream:  # type: ignore[type-var]
        return [chunk async for chunk in stream]


async def test_many_requests_are_answered_at_once_each_with_its_own_tokens() -> None:
    with ThreadedEngine(ScriptedEngine(lambda r: list(range(int(r.request_id))))) as engine:
        answers = await asyncio.gather(
            *(chunks_of(engine, a_request(str(n), 99)) for n in range(1, 9))
        )
    for n, chunks in enumerate(answers, 1):
        assert [token for chunk in chunks for token in chunk.token_ids] == list(range(n))
        assert [chunk.finish for chunk in chunks if chunk.finish] == [FinishReason.STOP]


async def test_who_leaves_is_cancelled() -> None:
    scripted = ScriptedEngine(lambda _: [5] * 10**6)
    with ThreadedEngine(scripted) as engine:
        stream = engine.generate(a_request("long", 10**6))
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        for _ in range(500):
            if not scripted.busy:
                break
            await WallClock().sleep(0.01)
        assert not scripted.busy


async def test_a_failing_engine_fails_who_waits_and_nobody_later() -> None:
    def script(request: GenerateRequest) -> list[int]:
        if request.request_id == "bad":
            raise RuntimeError("no memory")
        return [4, 4]

    with ThreadedEngine(ScriptedEngine(script)) as engine:
        with pytest.raises(EngineError, match="no memory"):
            await chunks_of(engine, a_request("bad", 9))
        assert len(await chunks_of(engine, a_request("good", 9))) == 2
