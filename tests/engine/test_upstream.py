"""Model servers over HTTP: every token once, whatever becomes of the connection."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from opengyre.app.wall import WallClock
from opengyre.core.errors import EngineError, UserError
from opengyre.core.fakes import CountingIds, FakeClock
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, Sampling, TokenChunk
from opengyre.engine.upstream.base import ServerLostError, ServerRefusedError
from opengyre.engine.upstream.client import Patience, Upstream
from opengyre.engine.upstream.fakes import FakeServer, FakeSGLang, FakeVllm, Fault, logprob_of
from opengyre.engine.upstream.find import find_server
from opengyre.engine.upstream.probe import check_server
from opengyre.engine.upstream.versions import VersionBook
from opengyre.engine.upstream.wire import Deadlines, Wire, checked_url

SERVERS: list[Callable[[], FakeServer]] = [
    FakeSGLang,
    lambda: FakeSGLang(incremental=True),
    FakeVllm,
]
NAMES = ["sglang", "sglang-incremental", "vllm"]
PROMPT = [9, 4, 77, 12]
every_server = pytest.mark.parametrize("make", SERVERS, ids=NAMES)
Make = Callable[[], FakeServer]


def a_request(tokens: int = 40, stops: tuple[int, ...] = (), **more: float) -> GenerateRequest:
    sampling = Sampling(max_new_tokens=tokens, stop_ids=list(stops), seed=3, **more)  # type: ignore[arg-type]
    return GenerateRequest(request_id="r", execution_id="e", prompt_ids=PROMPT, sampling=sampling)


@asynccontextmanager
async def reached(
    server: FakeServer, *, silence_s: float = 20.0, patience_s: float = 60.0
) -> AsyncIterator[Upstream]:
    await server.start()
    wire = Wire(server.url, Deadlines(silence_s=silence_s))
    try:
        api, facts = await find_server(wire, VersionBook())
        patience = Patience(total_s=patience_s)
        yield Upstream(api, facts, FakeClock(), CountingIds(), patience=patience, rows=server.rows)
        await api.close()
    finally:
        await wire.close()
        await server.stop()


async def chunks_of(upstream: Upstream, request: GenerateRequest) -> list[TokenChunk]:
    async with aclosing(upstream.generate(request)) as stream:  # type: ignore[type-var]
        return [chunk async for chunk in stream]


def ids_of(chunks: list[TokenChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def whole(server: FakeServer, request: GenerateRequest) -> list[int]:
    limit, stops = request.sampling.max_new_tokens, request.sampling.stop_ids
    return [token for token, _ in server._answer(PROMPT, limit, stops, 1.0)]


@every_server
async def test_tokens_and_logprobs_are_the_servers_own(make: Make) -> None:
    server, request = make(), a_request()
    async with reached(server) as upstream:
        chunks = await chunks_of(upstream, request)
    assert ids_of(chunks) == whole(server, request)
    assert [p for c in chunks for p in c.logprobs] == [logprob_of(t) for t in ids_of(chunks)]
    assert [chunk.finish for chunk in chunks if chunk.finish] == [FinishReason.LENGTH]
    assert all(chunk.request_id == "r" for chunk in chunks)


@every_server
async def test_a_stop_token_ends_the_answer_and_is_part_of_it(make: Make) -> None:
    server = make()
    stop = whole(server, a_request())[10]
    request = a_request(stops=(stop,))
    async with reached(server) as upstream:
        chunks = await chunks_of(upstream, request)
    assert ids_of(chunks)[-1] == stop
    assert chunks[-1].finish is FinishReason.STOP


@every_server
async def test_an_answer_that_had_all_its_tokens_only_lacks_its_finish(make: Make) -> None:
    server, request = make(), a_request(stops=(7,))
    stopped = replace(request, prompt_ids=[*PROMPT, 20, 7], first_index=2)
    full = replace(request, prompt_ids=PROMPT + [20] * 40, first_index=40)
    async with reached(server) as upstream:
        assert [c.finish for c in await chunks_of(upstream, stopped)] == [FinishReason.STOP]
        assert [c.finish for c in await chunks_of(upstream, full)] == [FinishReason.LENGTH]
    assert not server.requests


FAULTS = st.lists(
    st.one_of(
        st.builds(Fault, cut_after=st.integers(0, 6)),
        st.builds(Fault, failed_after=st.integers(0, 6)),
        st.builds(Fault, status=st.sampled_from([429, 500, 503])),
    ),
    max_size=5,
)


@settings(max_examples=12)
@given(FAULTS, st.sampled_from(SERVERS), st.booleans())
def test_an_answer_that_was_cut_goes_on_without_a_token_lost_or_doubled(
    faults: list[Fault], make: Make, stopping: bool
) -> None:
    server = make()
    plain = whole(server, a_request())
    request = a_request(stops=(plain[20],) if stopping else ())

    async def run() -> tuple[list[TokenChunk], Upstream]:
        server.faults = deque(faults)
        async with reached(server) as upstream:
            return await chunks_of(upstream, request), upstream

    chunks, upstream = asyncio.run(run())
    assert ids_of(chunks) == whole(server, request)
    assert sum(chunk.finish is not None for chunk in chunks) == 1
    assert chunks[-1].finish is (FinishReason.STOP if stopping else FinishReason.LENGTH)
    counts = upstream.counts
    assert counts.answered == 1
    assert counts.losses <= len(faults)
    assert counts.tokens == len(ids_of(chunks))
    assert sum(chunk.moves_recomputed for chunk in chunks) <= counts.continued <= counts.losses
    for asked in server.requests:
        sent = asked.get("input_ids") or asked["prompt"]
        assert sent == (PROMPT + ids_of(chunks))[: len(sent)]


@every_server
async def test_a_server_that_comes_back_is_gone_on_with(make: Make) -> None:
    server, request = make(), a_request()
    server.faults.append(Fault(cut_after=3))
    async with reached(server) as upstream:
        stream = upstream.generate(request)
        got = [await anext(stream)]
        await server.stop()
        await server.start()
        async for chunk in stream:
            got.append(chunk)
    assert ids_of(got) == whole(server, request)
    assert upstream.counts.continued >= 1


@every_server
async def test_another_model_in_its_place_is_not_gone_on_with(make: Make) -> None:
    server = make()
    server.faults.append(Fault(cut_after=2))
    async with reached(server) as upstream:
        stream = upstream.generate(a_request())
        await anext(stream)
        server.model = "another"
        with pytest.raises(ServerRefusedError, match="another"):
            _ = [chunk async for chunk in stream]
    assert upstream.counts.failed == 1


@every_server
async def test_patience_ends(make: Make) -> None:
    server = make()
    async with reached(server, patience_s=30.0) as upstream:
        await server.stop()
        with pytest.raises(EngineError, match="gave up after 30 s"):
            await chunks_of(upstream, a_request())
        assert upstream.trouble
        assert upstream.counts.in_flight == 0


@every_server
async def test_a_silent_server_is_asked_again(make: Make) -> None:
    server, request = make(), a_request()
    server.faults.append(Fault(stuck_after=2))
    async with reached(server, silence_s=0.2) as upstream:
        chunks = await chunks_of(upstream, request)
    assert ids_of(chunks) == whole(server, request)
    assert upstream.counts.losses == 1


@every_server
async def test_a_refusal_is_final_and_says_why(make: Make) -> None:
    server = make()
    server.context_tokens = 3
    async with reached(server) as upstream:
        with pytest.raises(ServerRefusedError, match=r"longer than|maximum context"):
            await chunks_of(upstream, a_request())
    assert len(server.requests) == 1


@every_server
async def test_who_leaves_aborts_at_the_server(make: Make) -> None:
    server = make()
    server.faults.append(Fault(stuck_after=3))
    async with reached(server) as upstream:
        stream = upstream.generate(a_request())
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        name = server.requests[0].get("rid") or server.requests[0]["request_id"]
        for _ in range(200):
            if name in server.aborted:
                break
            await WallClock().sleep(0.01)
    assert name in server.aborted
    assert upstream.counts.cancelled == 1
    assert upstream.counts.in_flight == 0


@every_server
async def test_a_token_without_a_row_is_never_sent(make: Make) -> None:
    server = make()
    async with reached(server) as upstream:
        with pytest.raises(ServerRefusedError, match="below 650"):
            await chunks_of(upstream, replace(a_request(), prompt_ids=[1, 650]))
    assert not server.requests


@every_server
@pytest.mark.parametrize("token", [-1, 650, 2**40])
async def test_a_token_that_no_model_has_is_never_taken(make: Make, token: int) -> None:
    server = make()
    server.script = lambda tokens: token if len(tokens) == len(PROMPT) + 9 else 5
    async with reached(server) as upstream:
        with pytest.raises(ServerRefusedError, match="below 650"):
            await chunks_of(upstream, a_request())
    assert len(server.requests) == 1


async def test_an_impossible_log_probability_is_never_taken() -> None:
    async with reached(FakeSGLang()) as upstream:
        chunk = TokenChunk(request_id="r", token_ids=[1], logprobs=[0.5], version=0, finish=None)
        for logprob in (0.5, float("inf"), float("nan")):
            with pytest.raises(ServerRefusedError, match="log-probabilities"):
                upstream._check_answer(replace(chunk, logprobs=[logprob]), 9)
        with pytest.raises(ServerRefusedError, match="at most 0 tokens"):
            upstream._check_answer(replace(chunk, logprobs=[-0.5]), 0)


async def test_an_answer_nested_without_end_is_refused() -> None:
    wire = Wire("http://127.0.0.1:9", Deadlines())
    for raw in (b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(ServerRefusedError, match="understands"):
            wire.decode(raw, dict)
    await wire.close()


@every_server
async def test_a_cut_distribution_is_refused(make: Make) -> None:
    async with reached(make()) as upstream:
        with pytest.raises(ServerRefusedError, match="top_p"):
            await chunks_of(upstream, a_request(top_p=0.9))


async def test_weight_versions_are_told_by_token_and_a_doubtful_one_is_the_older() -> None:
    server = FakeSGLang(versions=[(0, "default"), (5, "7"), (38, "tuned")])
    async with reached(server) as upstream:
        chunks = await chunks_of(upstream, a_request())
    versions = [chunk.version for chunk in chunks for _ in chunk.token_ids]
    true = [0] * 5 + [7] * 33 + [8] * 2
    assert len(versions) == 40
    assert all(told <= meant for told, meant in zip(versions, true, strict=True))
    assert versions[-7:] == true[-7:], "the last event tells its own tokens exactly"
    assert sum(told != meant for told, meant in zip(versions, true, strict=True)) < 8


@given(st.lists(st.text(max_size=3) | st.integers(0, 9).map(str), max_size=20))
def test_a_version_has_one_number_and_no_two_share_one(labels: list[str]) -> None:
    book = VersionBook()
    numbers = {label: book.number(label) for label in labels}
    assert len(set(numbers.values())) == len(numbers)
    again = VersionBook(book.labels)
    assert {label: again.number(label) for label in labels} == numbers


async def test_a_server_that_reads_other_tokens_than_it_was_sent_is_refused() -> None:
    class Changed(FakeSGLang):
        def _meta(self, body, answer):
            return super()._meta(body, answer) | {"prompt_tokens": len(body["input_ids"]) + 1}

    async with reached(Changed()) as upstream:
        with pytest.raises(ServerRefusedError, match="changes prompts"):
            await chunks_of(upstream, a_request())


# ---- before anything is recorded ---------------------------------------------------------------


async def asked(server: FakeServer, *, temperature: float = 1.0, rows: int = 650) -> list[str]:
    await server.start()
    wire = Wire(server.url, Deadlines())
    try:
        api, facts = await find_server(wire, VersionBook())
        return await check_server(
            api,
            facts,
            FakeServer.encode,
            model="the folder",
            rows=rows,
            temperature=temperature,
        )
    finally:
        await wire.close()
        await server.stop()


@every_server
async def test_the_right_server_passes(make: Make) -> None:
    assert len(await asked(make())) <= 1


@every_server
async def test_another_vocabulary_is_found_out(make: Make) -> None:
    server = make()
    server.encode = lambda text: [1, 2, 3]
    with pytest.raises(UserError, match="vocabulary of the folder"):
        await asked(server)


async def test_another_number_of_rows_is_found_out() -> None:
    with pytest.raises(UserError, match="650"):
        await asked(FakeSGLang(rows=900))


async def test_logprobs_of_another_temperature_are_found_out() -> None:
    with pytest.raises(UserError, match="processed_logprobs"):
        await asked(FakeVllm(), temperature=0.7)
    assert await asked(FakeVllm(processed_logprobs=True), temperature=0.7) == []
    assert len(await asked(FakeVllm())) == 1


@pytest.fixture
async def stranger() -> AsyncIterator[Callable[[], Awaitable[str]]]:
    runner = web.AppRunner(web.Application())

    async def start() -> str:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    await runner.cleanup()


async def test_a_server_of_another_kind_is_told(
    stranger: Callable[[], Awaitable[str]],
) -> None:
    wire = Wire(await stranger(), Deadlines())
    with pytest.raises(UserError, match="a SGLang or vLLM server"):
        await find_server(wire, VersionBook())
    await wire.close()


async def test_nobody_there_is_told() -> None:
    wire = Wire("http://127.0.0.1:9", Deadlines())
    with pytest.raises(UserError, match="a running server"):
        await find_server(wire, VersionBook())
    with pytest.raises(ServerLostError):
        await wire.ask("GET", "/version", None, dict)
    await wire.close()


@pytest.mark.parametrize("url", ["", "host:1", "ftp://host", "http://", "http://host:99999"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(UserError, match="--upstream"):
        checked_url(url)
