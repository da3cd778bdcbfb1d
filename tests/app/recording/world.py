"""A recording against a model that says known lines."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from tests.proxy.tokenizers_for_tests import small_tokenizer

from opengyre.app.paths import RunPaths
from opengyre.app.recording.options import RecordingOptions
from opengyre.app.recording.record import Place, record
from opengyre.app.wall import RandomIds
from opengyre.core.errors import UserError
from opengyre.core.records import Call
from opengyre.engine.upstream.fakes import FakeSGLang
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.serving import Serving
from opengyre.store.run import RunStore

FAMILY = Qwen3Family(small_tokenizer())
BUNDLED_POLICY = Path(str(files("opengyre.app.quickstart").joinpath("policy")))
ROWS = 440
KEY = "a-key-for-tests"
CALL = '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call>'
LINES = ["I look.\n" + CALL, "Done: two files.", "Again."]
"""What the served model says in its first turn, its second, …"""


def speaking(lines: list[str]) -> Callable[[Any], int]:
    """A script that says one line a turn, by the text before it alone."""
    header = FAMILY.encode(FAMILY.generation_prompt)

    def script(tokens: Sequence[int]) -> int:
        tokens = list(tokens)
        starts = [
            i for i in range(len(tokens) - len(header) + 1) if tokens[i : i + len(header)] == header
        ]
        if not starts:
            return 5  # a test question, not a conversation
        line = [*FAMILY.encode(lines[(len(starts) - 1) % len(lines)]), FAMILY.stop_ids[0]]
        said = len(tokens) - starts[-1] - len(header)
        return line[said] if said < len(line) else FAMILY.stop_ids[0]

    return script


@dataclass
class Open:
    """A recording that serves."""

    serving: Serving
    key: str
    session: aiohttp.ClientSession

    async def post(
        self, path: str, body: Any, key: str | None = None
    ) -> tuple[int, dict[str, Any]]:
        url = f"http://127.0.0.1:{self.serving.port}/run/{path}"
        headers = {"x-api-key": self.key if key is None else key}
        async with self.session.post(url, json=body, headers=headers) as response:
            return response.status, await response.json()

    async def say(self, execution: str, messages: list[Any]) -> dict[str, Any]:
        status, answer = await self.post(f"{execution}/v1/messages", anthropic(messages))
        assert status == 200, answer
        return answer


def anthropic(messages: list[Any]) -> dict[str, Any]:
    tool = {"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}
    return {"model": "policy", "max_tokens": 300, "messages": messages, "tools": [tool]}


@asynccontextmanager
async def recording(options: RecordingOptions, out: Path, key: str = KEY) -> AsyncIterator[Open]:
    """Open while in the block; ctrl-C after it."""
    opened: asyncio.Future[tuple[Serving, str]] = asyncio.get_running_loop().create_future()
    paths = RunPaths.make(out)
    place = Place(
        paths,
        Console(quiet=True),
        RandomIds(),
        key=key,
        opened=lambda serving, key: opened.set_result((serving, key)),
    )
    task = asyncio.ensure_future(record(options, place))
    try:
        awaited: list[asyncio.Future[Any]] = [task, opened]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        async with aiohttp.ClientSession() as session:
            yield Open(*opened.result(), session)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, UserError):
            await task
        paths.remove_private()


def options_for(server: FakeSGLang, model: Path, **more: Any) -> RecordingOptions:
    given: dict[str, Any] = {"family": "auto", "harness": "auto", "port": 0, "executions": ()}
    return RecordingOptions(upstream=server.url, model=model, **(given | more))


def calls_of(out: Path, execution: str) -> list[Call]:
    with RunStore(out / "run.sqlite") as store:
        return store.calls(execution)


USER = {"role": "user", "content": "What is here?"}


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    used = next(block for block in answer["content"] if block["type"] == "tool_use")
    block = {"type": "tool_result", "tool_use_id": used["id"], "content": "a b"}
    return {"role": "user", "content": [block]}


async def two_turns(opened: Open, execution: str) -> list[Any]:
    first = await opened.say(execution, [USER])
    messages = [USER, {"role": "assistant", "content": first["content"]}, result_of(first)]
    second = await opened.say(execution, messages)
    return [*messages, {"role": "assistant", "content": second["content"]}]
