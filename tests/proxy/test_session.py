"""Retries, disconnects, waiting streams, limits: over a real port with a plain HTTP client."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from opengyre.app.wall import WallClock
from opengyre.core.errors import StoreError, UserError
from opengyre.core.reasons import FinishReason, ForkReason
from opengyre.core.records import Call
from opengyre.proxy.serving import serve
from opengyre.proxy.session import call_seed
from tests.proxy.conftest import FAMILY, KEY, Start, World, tool_call

HEADERS = {"x-api-key": KEY}


def body(text: str = "Hi", **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}


async def post(
    session: aiohttp.ClientSession, world: World, sent: Any, headers: Any = None
) -> tuple[int, Any]:
    url = f"{world.url}/v1/messages"
    async with session.post(url, json=sent, headers=headers or HEADERS) as response:
        return response.status, json.loads(await response.text())


async def test_a_retry_in_flight_gets_the_same_answer(start: Start) -> None:
    world = await start([tool_call("ls")])
    world.generator.go.clear()
    async with aiohttp.ClientSession() as session:
        one = asyncio.ensure_future(post(session, world, body()))
        await world.generator.waiting.wait()
        shuffled = {"stream": False, **dict(reversed(body().items()))}
        two = asyncio.ensure_future(post(session, world, shuffled))
        while world.executions.report("e1").repeated_calls == 0:
            await WallClock().sleep(0.005)
        world.generator.go.set()
        assert await one == await two
    report = await world.executions.close("e1")
    assert (report.calls, report.complete_replies, report.repeated_calls) == (1, 1, 1)


@pytest.mark.parametrize("cells", [(), (1,), (1, 0)])
async def test_a_call_says_which_cells_it_was_given_to(
    start: Start, cells: tuple[int, ...]
) -> None:
    world = await start(["An answer of more than a chunk of tokens."], cells=cells)
    async with aiohttp.ClientSession() as session:
        await post(session, world, body())
    (call,) = world.calls
    assert call.cells == list(cells)
    assert call.cell == (cells[-1] if cells else None)
    report = await world.executions.close("e1")
    tokens = len(call.output_ids)
    assert report.calls_by_cell == ({cells[-1]: 1} if cells else {})
    assert report.tokens_by_cell == ({cells[-1]: tokens} if cells else {})


async def test_a_retry_after_delivery_is_a_sibling_and_reuses_the_prompt(start: Start) -> None:
    world = await start(["One.", "Two."])
    async with aiohttp.ClientSession() as session:
        _, one = await post(session, world, body())
        _, two = await post(session, world, body())
    assert [one["content"][0]["text"], two["content"][0]["text"]] == ["One.", "Two."]
    assert world.calls[1].fork is ForkReason.SIBLING
    assert world.calls[1].parent_id == world.calls[0].call_id
    first, second = world.generator.requests
    assert first.prompt_ids == second.prompt_ids
    assert first.sampling.seed != second.sampling.seed


async def test_agents_that_ask_the_same_are_not_retries(start: Start) -> None:
    world = await start(["One.", "Two."])
    world.generator.go.clear()
    async with aiohttp.ClientSession() as session:
        asks = [
            asyncio.ensure_future(
                post(session, world, body(), {**HEADERS, "x-claude-code-agent-id": agent})
            )
            for agent in ("a", "b")
        ]
        while len(world.generator.requests) < 2:
            await WallClock().sleep(0.005)
        world.generator.go.set()
        await asyncio.gather(*asks)
    assert len(world.calls) == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_stops_the_generation_and_its_part_is_recorded(
    start: Start, stream: bool
) -> None:
    world = await start(["A long answer in some tokens.", "Two."], ping_s=0.01)
    world.generator.go.clear()
    async with aiohttp.ClientSession() as session:
        ask = asyncio.ensure_future(post(session, world, body(stream=stream)))
        await world.generator.waiting.wait()
        ask.cancel()
        await asyncio.wait([ask])
        while not world.calls:
            await WallClock().sleep(0.005)
        world.generator.go.set()
        (call,) = world.calls
        assert call.finish is FinishReason.ABORT
        assert call.output_ids == [
            *FAMILY.encode("A long answer in some tokens."),
            FAMILY.stop_ids[0],
        ]
        assert world.generator.cancelled == [call.call_id]
        status, _ = await post(session, world, body(stream=False))
        assert status == 200
    assert world.calls[1].fork is ForkReason.SIBLING
    report = await world.executions.close("e1")
    assert (report.aborted_calls, report.complete_replies) == (1, 1)


async def test_closing_an_execution_records_what_was_in_flight(start: Start) -> None:
    world = await start(["Never heard."])
    world.generator.go.clear()
    async with aiohttp.ClientSession() as session:
        ask = asyncio.ensure_future(post(session, world, body()))
        await world.generator.waiting.wait()
        report = await world.executions.close("e1")
        assert (report.calls, report.aborted_calls) == (1, 1)
        status, told = await ask
        assert status == 404
        assert "closed" in told["error"]["message"]


@pytest.mark.parametrize(
    ("path", "sign", "sent"),
    [
        ("messages", b"event: ping", body(stream=True)),
        ("chat/completions", b": still at work", body(stream=True)),
        ("responses", b": still at work", {"model": "m", "input": "Hi", "stream": True}),
    ],
)
async def test_a_waiting_stream_shows_life_and_tells_nothing_before_the_record(
    start: Start, path: str, sign: bytes, sent: Any
) -> None:
    world = await start(["The secret."], ping_s=0.01)
    world.generator.go.clear()
    url = f"{world.url}/v1/{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=sent, headers=HEADERS) as response,
    ):
        seen = b""
        while seen.count(sign) < 2:
            seen += await response.content.readany()
        assert not world.calls
        assert b"secret" not in seen
        world.generator.go.set()
        seen += await response.read()
    assert b"The secret." in seen
    assert len(world.calls) == 1


class FullDisk:
    """A recorder that cannot record."""

    async def record(self, call: Call) -> None:
        raise StoreError(f"no space left for {call.call_id}")


async def test_what_cannot_be_recorded_is_not_told(start: Start) -> None:
    world = await start(["The secret."], recorder=FullDisk())
    async with aiohttp.ClientSession() as session:
        status, told = await post(session, world, body())
    assert status == 500
    assert "no space left" in told["error"]["message"]
    assert (await world.executions.close("e1")).failed_calls == 1


async def test_a_long_body_is_refused_whether_announced_or_not(start: Start) -> None:
    world = await start([], max_body_bytes=1000)

    async def pieces() -> Any:
        for _ in range(3):
            yield b" " * 500

    url = f"{world.url}/v1/messages"
    async with aiohttp.ClientSession() as session:
        for data in (b" " * 1001, pieces()):
            async with session.post(url, data=data, headers=HEADERS) as response:
                assert response.status == 413
                assert (await response.json())["error"]["type"] == "request_too_large"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[1]", "wanted a JSON object"),
        (b'{"model": "m"', "wanted a JSON object"),
        (b'{"model": "m"}', "messages"),
        (b'{"model": "m", "messages": [{"role": "user", "content": 3}]}', "content"),
        (b'{"model": "m", "messages": [{"role": "dog", "content": "x"}]}', "dog"),
        (b'{"model": "m", "messages": [{"role": "user", "content": [{"type": "x"}]}]}', "x"),
    ],
)
async def test_nonsense_is_refused_with_its_place(start: Start, data: bytes, says: str) -> None:
    world = await start([])
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.url}/v1/messages", data=data, headers=HEADERS) as response,
    ):
        assert response.status == 400
        assert says in (await response.json())["error"]["message"]


async def test_half_a_surrogate_pair_is_mended(start: Start) -> None:
    world = await start(["Fine."])
    data = b'{"model": "m", "messages": [{"role": "user", "content": "a\\ud800b"}]}'
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.url}/v1/messages", data=data, headers=HEADERS) as response,
    ):
        assert response.status == 200
    assert "a\ufffdb" in FAMILY.decode(world.generator.requests[0].prompt_ids)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"x-api-key": "other"}, 401),
        ({"authorization": "Bearer other"}, 401),
        ({"authorization": f"Basic {KEY}"}, 401),
        ({"authorization": f"Bearer {KEY}"}, 200),
        ({"x-api-key": KEY}, 200),
    ],
)
async def test_only_its_own_key_opens_a_door(start: Start, headers: Any, status: int) -> None:
    world = await start(["Hello."])
    async with aiohttp.ClientSession() as session:
        url = f"{world.url}/v1/messages"
        async with session.post(url, json=body(), headers=headers) as response:
            assert response.status == status
        async with session.get(f"{world.url}/v1/models", headers=headers) as response:
            assert response.status == status
    report = await world.executions.close("e1")
    assert report.refused_calls == 0


async def test_unknown_executions_and_paths_are_named(start: Start) -> None:
    world = await start([])
    async with aiohttp.ClientSession() as session:
        other = world.url.replace("e1", "e2")
        async with session.post(f"{other}/v1/messages", json=body(), headers=HEADERS) as response:
            assert response.status == 404
            assert "no execution e2" in (await response.json())["error"]["message"]
        async with session.head(f"{world.url}/api/hello", headers=HEADERS) as response:
            assert response.status == 404
        async with session.head(world.url, headers=HEADERS) as response:
            assert response.status == 200


async def test_answers_fit_the_context(start: Start) -> None:
    world = await start(["word " * 300], context_tokens=100)
    async with aiohttp.ClientSession() as session:
        _, told = await post(session, world, body(max_tokens=128000))
    (request,) = world.generator.requests
    assert request.sampling.max_new_tokens == 100 - len(request.prompt_ids)
    assert told["stop_reason"] == "max_tokens"
    assert told["usage"]["output_tokens"] == request.sampling.max_new_tokens


async def test_a_door_opens_once(start: Start) -> None:
    world = await start([])
    with pytest.raises(UserError, match="e1 is open already"):
        world.executions.open("e1", "k", harness="command", seed=0)


async def test_a_port_in_use_is_a_clear_error(start: Start) -> None:
    world = await start([])
    with pytest.raises(UserError, match=r"in use.*proxy\.port"):
        await serve(_nobody, port=world.serving.port)


async def test_a_unix_socket_serves_and_is_gone_afterwards(tmp_path: Any) -> None:
    path = tmp_path / "door.sock"
    serving = await serve(_nobody, socket_path=path)
    with pytest.raises(UserError, match="another server"):
        await serve(_nobody, socket_path=path)
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session,
        session.get("http://door/") as response,
    ):
        assert response.status == 204
    await serving.stop()
    assert not path.exists()


async def _nobody(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_seeds_are_stable_and_differ() -> None:
    assert call_seed(1, 2) == call_seed(1, 2)
    assert len({call_seed(seed, index) for seed in range(20) for index in range(20)}) == 400
