"""Recording a program against a served model: a whole run folder, whatever happens."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from rich.console import Console
from tests.app.recording.world import (
    BUNDLED_POLICY,
    FAMILY,
    KEY,
    LINES,
    USER,
    anthropic,
    calls_of,
    options_for,
    recording,
    result_of,
    two_turns,
)

from opengyre.app.export.write import Choice, export_run
from opengyre.app.recording.options import RecordingOptions, chosen
from opengyre.app.report.page import write_report
from opengyre.app.show_tree import show_tree
from opengyre.app.wall import WallClock
from opengyre.core.errors import UserError
from opengyre.core.reasons import FinishReason, Role
from opengyre.engine.upstream.fakes import FakeSGLang, Fault, logprob_of
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree


async def test_a_conversation_is_recorded_token_for_token(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    async with recording(options_for(server, model), out) as opened:
        await two_turns(opened, "a")
    first, second = calls_of(out, "a")
    tree = ExecutionTree([first, second])
    sent = [body["input_ids"] for body in server.requests[1:]]  # after the test question
    assert sent == [tree.prompt_ids(first.call_id), tree.prompt_ids(second.call_id)]
    for call, line in zip((first, second), LINES, strict=False):
        assert call.output_ids == [*FAMILY.encode(line), FAMILY.stop_ids[0]]
        assert call.output_logprobs == [logprob_of(token) for token in call.output_ids]
        assert call.finish is FinishReason.STOP
    assert second.parent_id == first.call_id
    assert second.fork is None
    assert second.role is Role.MAIN


async def test_tree_report_and_export_read_the_folder(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, data = tmp_path / "run", tmp_path / "data"
    async with recording(options_for(server, model), out) as opened:
        await two_turns(opened, "a")
    console = Console(width=100)
    with console.capture() as shown:
        show_tree(out, "list", console)
        show_tree(out, "a", console)
    assert "no verdict" in shown.get()
    assert "2 calls" in shown.get()
    assert '"sampled_tokens"' in (out / "summary.json").read_text()
    assert "sampled_tokens" in write_report(out).read_text()
    counts = export_run(out, data, Choice(), lambda: FAMILY)
    assert (counts.executions, counts.rows, counts.documents) == (1, 1, 1)
    assert counts.tokens == sum(len(call.output_ids) for call in calls_of(out, "a"))


async def test_only_the_key_opens_and_names_are_plain(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    async with recording(options_for(server, model), tmp_path / "run") as opened:
        body = anthropic([USER])
        assert (await opened.post("a/v1/messages", body, key="another"))[0] == 401
        assert (await opened.post("a/v1/messages", body, key=""))[0] == 401
        assert (await opened.post("a%20b/v1/messages", body))[0] == 404
        assert (await opened.post("a/v1/messages", body))[0] == 200
        assert (await opened.post("a/v1/messages", body, key="another"))[0] == 401
        assert (await opened.post("a/end", {}, key="another"))[0] == 401


async def test_named_executions_have_keys_of_their_own(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    options = options_for(server, model, executions=("one", "two"))
    async with recording(options, tmp_path / "run") as opened:
        assert (await opened.post("one/v1/messages", anthropic([USER])))[0] == 401
        assert (await opened.post("three/v1/messages", anthropic([USER])))[0] == 404


async def test_a_recording_goes_on_where_it_was_stopped(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out) as opened:
        messages = await two_turns(opened, "a")
    async with recording(options, out) as opened:
        await opened.say("a", [*messages, {"role": "user", "content": "And now?"}])
    calls = calls_of(out, "a")
    assert [call.index for call in calls] == [0, 1, 2]
    assert calls[2].parent_id == calls[1].call_id
    assert calls[2].fork is None
    assert calls[2].started_at >= calls[1].ended_at
    assert (out / "key").stat().st_mode & 0o777 == 0o600


async def test_an_unfinished_answer_goes_on_from_its_tokens(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out) as opened:
        server.faults.append(Fault(stuck_after=2))
        asking = asyncio.ensure_future(opened.post("a/v1/messages", anthropic([USER])))
        while len(server.requests) < 2:
            await WallClock().sleep(0.01)
        await WallClock().sleep(0.2)
    with suppress(aiohttp.ClientError):
        await asking
    async with recording(options, out) as opened:
        await opened.say("a", [USER])
    (call,) = calls_of(out, "a")
    assert call.output_ids == [*FAMILY.encode(LINES[0]), FAMILY.stop_ids[0]]
    begun, went_on = server.requests[1]["input_ids"], server.requests[-1]["input_ids"]
    assert went_on[: len(begun)] == begun
    assert len(went_on) == len(begun) + 1 + server.tokens_an_event


async def test_a_call_that_is_given_up_is_recorded_as_far_as_it_came(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    async with recording(options_for(server, model), out) as opened:
        server.faults.append(Fault(stuck_after=2))
        asking = asyncio.ensure_future(opened.post("a/v1/messages", anthropic([USER])))
        while len(server.requests) < 2:
            await WallClock().sleep(0.01)
        await WallClock().sleep(0.2)
        asking.cancel()
        while not calls_of(out, "a"):
            await WallClock().sleep(0.02)
        assert server.requests[1]["rid"] in server.aborted
    (call,) = calls_of(out, "a")
    assert call.finish is FinishReason.ABORT
    assert len(call.output_ids) == 1 + server.tokens_an_event


async def test_a_reward_ends_an_execution_and_weighs_it_in_its_group(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out) as opened:
        for name, reward in (("a", 1.0), ("b", 0.0)):
            await two_turns(opened, name)
            said = {"reward": reward, "group": "g", "task": "t", "passed": reward == 1.0}
            assert (await opened.post(f"{name}/end", said))[0] == 200
        assert (await opened.post("a/v1/messages", anthropic([USER])))[0] == 404
        assert (await opened.post("c/end", {"reward": "high"}))[0] == 400
    async with recording(options, out) as opened:
        assert (await opened.post("a/v1/messages", anthropic([USER])))[0] == 404
    with RunStore(out / "run.sqlite") as store:
        records, ledgers = store.executions(), store.ledgers()
    assert [(r.execution_id, r.verdict.reward) for r in records] == [("a", 1.0), ("b", 0.0)]
    assert all(ledgers[name].balanced and ledgers[name].trained for name in ("a", "b"))


async def test_what_cannot_be_booked_does_not_end_an_execution(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, long = tmp_path / "run", "9" * 400
    async with recording(options_for(server, model), out) as opened:
        messages = await two_turns(opened, "a")
        for said in (
            {"reward": int(long)},
            {"reward": True},
            {"reward": 1, "group": 7},
            {"reward": 1, "passed": "false"},
            {"reward": 1, "detail": ["x" * 5000]},
        ):
            status, told = await opened.post("a/end", said)
            assert status == 400, said
            assert len(told["error"]["message"]) < 200
        await opened.say("a", [*messages, {"role": "user", "content": "And now?"}])
        assert (await opened.post("a/end", {"reward": 1, "passed": False}))[0] == 200
    with RunStore(out / "run.sqlite") as store:
        (verdict,) = [record.verdict for record in store.executions()]
    assert (verdict.reward, verdict.passed) == (1.0, False)


async def test_a_reward_in_pieces_is_a_reward(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"rew'
        yield b'ard": 0.5}'

    out = tmp_path / "run"
    async with recording(options_for(server, model), out) as opened:
        await two_turns(opened, "a")
        async with (
            aiohttp.ClientSession(headers={"x-api-key": KEY}) as client,
            client.post(
                f"http://127.0.0.1:{opened.serving.port}/run/a/end", data=pieces()
            ) as response,
        ):
            assert response.status == 200
    with RunStore(out / "run.sqlite") as store:
        assert [record.verdict.reward for record in store.executions()] == [0.5]


async def test_a_folder_keeps_to_its_model(server: FakeSGLang, model: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "run", options_for(server, model)
    async with recording(options, out):
        pass
    other = tmp_path / "other"
    await asyncio.to_thread(model.rename, other)
    with pytest.raises(UserError, match="as it was begun"):
        async with recording(replace(options, model=other), out):
            pass


async def test_a_lost_server_is_waited_for_and_counted(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    async with recording(options_for(server, model), out) as opened:
        server.faults.append(Fault(cut_after=2))
        await opened.say("a", [USER])
    (call,) = calls_of(out, "a")
    assert call.moves_recomputed == 1
    summary = json.loads((out / "summary.json").read_text())
    assert summary["continued_calls"] == 1
    assert summary["server"]["losses"] == 1


async def test_a_policy_of_ones_own_needs_no_server(tmp_path: Path) -> None:
    out, folder = tmp_path / "run", BUNDLED_POLICY
    options = RecordingOptions(
        upstream=None,
        model=folder,
        family="qwen3",
        harness="command",
        executions=(),
        port=0,
        max_new_tokens=24,
    )
    async with recording(options, out) as opened:
        status, answer = await opened.post("a/v1/messages", anthropic([USER]))
        assert status == 200, answer
    (call,) = calls_of(out, "a")
    import torch

    from opengyre.model.folder import load_model
    from opengyre.model.qwen3 import causal_attend

    ids = torch.tensor(call.suffix_ids + call.output_ids)
    policy = load_model(folder)
    with torch.no_grad():
        hidden = policy.hidden(ids, torch.arange(len(ids)), causal_attend)
        logps = policy.logits(hidden).log_softmax(-1)
    start = len(call.suffix_ids)
    found = logps[torch.arange(start - 1, len(ids) - 1), ids[start:]]
    assert torch.allclose(found, torch.tensor(call.output_logprobs), atol=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "neither"),
        ({"upstream": "http://x"}, "without --model"),
        ({"upstream": "http://x", "model": Path("m"), "policy": Path("p")}, "beside"),
        ({"policy": Path("p"), "executions": ["a"], "any_name": True}, "both"),
        ({"policy": Path("p"), "executions": ["a", "a"]}, "different"),
        ({"policy": Path("p"), "executions": ["a/b"]}, "different"),
        ({"policy": Path("p"), "harness": "emacs"}, "emacs"),
        ({"policy": Path("p"), "model": Path("m")}, "--policy beside --model"),
    ],
)
def test_options_that_do_not_go_together_are_told(given: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {
        "upstream": None,
        "model": None,
        "policy": None,
        "executions": [],
        "any_name": False,
        "family": "auto",
        "harness": "auto",
    }
    with pytest.raises(UserError, match=message):
        chosen(**(usual | given))


def test_the_bundled_policy_has_a_name() -> None:
    given: dict[str, Any] = {"any_name": True, "family": "auto", "harness": "auto"}
    options = chosen(None, None, Path("quickstart"), [], **given)
    assert options.model == BUNDLED_POLICY


@pytest.mark.slow
@pytest.mark.timeout(120)  # two programs start, on a machine that may be busy
async def test_the_command_survives_kill_and_ends_well_on_ctrl_c(
    server: FakeSGLang, model: Path, tmp_path: Path
) -> None:
    out, socket = tmp_path / "run", tmp_path / "proxy.sock"
    command = [
        *(sys.executable, "-m", "opengyre.app.cli", "proxy", "--open", "--port", "0"),
        *("--upstream", server.url, "--model", str(model)),
        *("--out", str(out), "--socket", str(socket)),
    ]
    environment = os.environ | {"OPENGYRE_KEY": KEY}

    async def once(number: signal.Signals, messages: list[Any]) -> tuple[str, list[Any]]:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=PIPE, stderr=STDOUT
        )
        asking = asyncio.ensure_future(asked_through(socket, messages))
        ended = asyncio.ensure_future(process.communicate())
        awaited: list[asyncio.Future[Any]] = [asking, ended]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.send_signal(number)
        said = (await ended)[0].decode()
        assert asking.done(), said
        answer = asking.result()
        assert process.returncode == (0 if number is signal.SIGINT else -number)
        told = {"role": "assistant", "content": answer["content"]}
        used = [block for block in answer["content"] if block["type"] == "tool_use"]
        follow_up = result_of(answer) if used else {"role": "user", "content": "And then?"}
        return said, [*messages, told, follow_up]

    said, messages = await once(signal.SIGKILL, [USER])
    assert "base URL" in said
    said, _ = await once(signal.SIGINT, messages)
    assert f"opengyre export {out}" in said
    first, second = calls_of(out, "a")
    assert second.parent_id == first.call_id
    assert second.fork is None


async def asked_through(socket: Path, messages: list[Any]) -> dict[str, Any]:
    """Asks until the proxy is there."""
    while True:
        connector = aiohttp.UnixConnector(str(socket))
        async with aiohttp.ClientSession(connector=connector) as session:
            with suppress(aiohttp.ClientConnectionError, FileNotFoundError):
                async with session.post(
                    "http://proxy/run/a/v1/messages",
                    json=anthropic(messages),
                    headers={"x-api-key": KEY},
                ) as response:
                    answer: dict[str, Any] = await response.json()
                    return answer
        await WallClock().sleep(0.05)
