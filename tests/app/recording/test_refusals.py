"""What a recording refuses by itself reaches the official clients as their own typed errors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from tests.app.recording.world import KEY, USER, Open, options_for, recording

from opengyre.engine.upstream.fakes import FakeSGLang


async def ask_claude(opened: Open, path: str, key: str) -> Any:
    url = f"http://127.0.0.1:{opened.serving.port}{path}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        return await client.messages.create(model="m", max_tokens=9, messages=[USER])  # type: ignore[list-item]


async def count_claude(opened: Open, path: str, key: str) -> Any:
    url = f"http://127.0.0.1:{opened.serving.port}{path}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        return await client.messages.count_tokens(model="m", messages=[USER])  # type: ignore[list-item]


async def ask_chat(opened: Open, path: str, key: str) -> Any:
    url = f"http://127.0.0.1:{opened.serving.port}{path}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        return await client.chat.completions.create(model="m", messages=[USER])  # type: ignore[list-item]


async def ask_responses(opened: Open, path: str, key: str) -> Any:
    url = f"http://127.0.0.1:{opened.serving.port}{path}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:
        return await client.responses.create(model="m", input=[USER])  # type: ignore[list-item]


async def models_of_claude(opened: Open, path: str, key: str) -> Any:
    url = f"http://127.0.0.1:{opened.serving.port}{path}"
    async with anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0) as client:
        return await client.models.list()


Ask = Callable[[Open, str, str], Any]
ASKS = [
    (ask_claude, anthropic),
    (count_claude, anthropic),
    (models_of_claude, anthropic),
    (ask_chat, openai),
    (ask_responses, openai),
]


def prove_shape(error: Any, vendor: Any) -> None:
    """As every refusal of the proxy has it."""
    assert error.response.headers["x-should-retry"] == "false"
    assert error.request_id.startswith("req")
    if vendor is anthropic:
        assert error.body["type"] == "error"
        assert error.type == error.body["error"]["type"]
    else:
        assert error.body["message"] in str(error)
        assert error.type
        assert error.code


@pytest.mark.parametrize(("ask", "vendor"), ASKS)
async def test_refusals_are_in_the_words_of_the_api_that_was_asked(
    server: FakeSGLang, model: Path, tmp_path: Path, ask: Ask, vendor: Any
) -> None:
    async with recording(options_for(server, model), tmp_path / "run") as opened:
        await opened.post("over/end", {})
        for path, key, kind, message in (
            ("/run/a", "another", vendor.AuthenticationError, "found another"),
            ("/run/over", KEY, vendor.NotFoundError, "over has ended"),
            ("/run/a%20b", KEY, vendor.NotFoundError, "wanted a name"),
            ("", KEY, vendor.NotFoundError, "a base URL ends in /run/NAME"),
        ):
            with pytest.raises(kind, match=message) as found:
                await ask(opened, path, key)
            prove_shape(found.value, vendor)


@pytest.mark.parametrize(("ask", "vendor"), ASKS)
async def test_an_execution_that_was_not_named_is_not_found(
    server: FakeSGLang, model: Path, tmp_path: Path, ask: Ask, vendor: Any
) -> None:
    options = options_for(server, model, executions=("one",))
    async with recording(options, tmp_path / "run") as opened:
        for path, kind in (("one", vendor.AuthenticationError), ("two", vendor.NotFoundError)):
            with pytest.raises(kind) as found:
                await ask(opened, f"/run/{path}", KEY)
            prove_shape(found.value, vendor)


async def test_a_refused_end_has_the_shape_of_its_client(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    async with recording(options_for(server, model), tmp_path / "run") as opened:
        url = f"http://127.0.0.1:{opened.serving.port}/run/a"
        async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client:
            with pytest.raises(anthropic.BadRequestError, match="reward") as found:
                await client.post("/end", body={"reward": "high"}, cast_to=object)
            prove_shape(found.value, anthropic)
            with pytest.raises(anthropic.APIStatusError) as large:
                await client.post("/end", body={"detail": "x" * (1 << 20)}, cast_to=object)
            assert large.value.status_code == 413
            assert large.value.response.json()["error"]["type"] == "request_too_large"
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as other:
            with pytest.raises(openai.BadRequestError, match="passed"):
                await other.post("/end", body={"passed": 1}, cast_to=object)
