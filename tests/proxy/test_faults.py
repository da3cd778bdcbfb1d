"""Errors of ours that nobody foresaw: counted, answered in the client's words, and over."""

import json
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from opengyre.core.records import Call, GenerateRequest
from opengyre.proxy.dialects.anthropic import AnthropicDialect
from tests.proxy.conftest import FAMILY, KEY, Start, World


class Broken:
    """A part whose named method fails the first time that it is called."""

    def __init__(self, part: Any, method: str) -> None:
        self._part, self._method, self._failed = part, method, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name != self._method:
            return found

        def once(*args: Any, **more: Any) -> Any:
            if not self._failed:
                self._failed = True
                raise KeyError("a fault of the test")
            return found(*args, **more)

        return once


class Recorder:
    """Fails with what is no StoreError."""

    def __init__(self) -> None:
        self.failed = False

    async def record(self, call: Call) -> None:
        if not self.failed:
            self.failed = True
            raise KeyError("a fault of the test")


def script() -> Callable[[GenerateRequest], str]:
    asked: list[str] = []

    def say(request: GenerateRequest) -> str:
        asked.append(request.request_id)
        if len(asked) == 1:
            raise KeyError("a fault of the test")
        return "Fine."

    return say


def break_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Words for an answer cannot be found the first time."""
    original = getattr(AnthropicDialect, name)
    failing = iter([True])

    def once(self: AnthropicDialect, *args: Any) -> Any:
        if next(failing, False):
            raise KeyError("a fault of the test")
        return original(self, *args)

    monkeypatch.setattr(AnthropicDialect, name, once)


async def post(world: World, *, stream: bool) -> tuple[int, str]:
    sent = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{world.url}/v1/messages", json=sent, headers={"x-api-key": KEY}) as response,
    ):
        return response.status, await response.text()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["engine", "recorder", "parse", "render", "whole or events"])
async def test_a_fault_is_a_counted_failure_with_a_typed_answer_and_the_next_try_succeeds(
    start: Start, monkeypatch: pytest.MonkeyPatch, where: str, stream: bool
) -> None:
    more: dict[str, Any] = {}
    if where in {"parse", "render"}:
        more["family"] = Broken(FAMILY, where)
    if where == "recorder":
        more["recorder"] = Recorder()
    if where == "whole or events":
        break_once(monkeypatch, "events" if stream else "whole")
    world = await start(script() if where == "engine" else ["Fine.", "Fine."], **more)
    status, told = await post(world, stream=stream)
    assert status == 500
    assert json.loads(told)["error"]["type"] == "api_error"
    assert "a fault of the proxy (KeyError" in told
    status, told = await post(world, stream=stream)
    assert status == 200
    assert "Fine." in told
    report = await world.executions.close("e1")
    assert (report.failed_calls, report.complete_replies) == (1, 1)
    assert not report.last_failed
