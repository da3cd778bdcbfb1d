"""The kit itself, with a plain client in place of an agent program."""

import asyncio
import io
import tarfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from opengyre.core.errors import UserError
from opengyre.proxy.families.qwen3 import Qwen3Family
from tests.conformance.cells import Say
from tests.conformance.conftest import Start
from tests.conformance.faults import Answer, Cut
from tests.conformance.programs import PACKAGES, unpack, verify
from tests.conformance.scenario import Lines, call
from tests.conformance.world import KEY, World
from tests.proxy.tokenizers_for_tests import small_tokenizer

FAMILY = Qwen3Family(small_tokenizer())
SUMMARY = "CRITICAL: Respond with TEXT ONLY"


async def ask(world: World, *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    sent = {"model": "m", "messages": list(messages), **more}
    async with (
        aiohttp.ClientSession(headers={"x-api-key": KEY}) as session,
        session.post(f"{world.url}/v1/messages", json=sent) as response,
    ):
        return {"status": response.status, **await response.json(content_type=None)}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(answer: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": answer["content"]}


async def test_a_conversation_is_one_branch_and_a_changed_one_another(start: Start) -> None:
    lines = Lines({"Hello": [Say("One.", "one"), Say("Two.", "two"), Say("Three.", "three")]})
    world = await start(lines, harness="command", family=FAMILY)
    one = await ask(world, user("Hello"))
    await ask(world, user("Hello"), reply(one), user("On."))
    await ask(world, user("Hello"), user("Again."))
    world.check()
    assert world.shape() == ["main: one two", "  main (history-edited): three"]
    assert lines.left == []


async def test_calls_that_meet_are_in_flight_together(start: Start) -> None:
    lines = Lines({"A": [Say("x", "a", together=2)], "B": [Say("y", "b", together=2)]})
    world = await start(lines, harness="command", family=FAMILY)
    await asyncio.gather(ask(world, user("A")), ask(world, user("B")))
    world.check()
    assert {name.split(":")[-1] for name in world.shape()} == {" a", " b"}


async def test_a_role_switch_moves_the_call_and_loses_nothing(start: Start) -> None:
    lines = Lines({"Hello": [Say("A long answer about files.", "one", move_after=3)]})
    world = await start(lines, harness="command", family=FAMILY)
    answer = await ask(world, user("Hello"))
    assert answer["content"][0]["text"] == "A long answer about files."
    world.check()
    assert world.report().moves_with_kv == 1


async def test_a_held_call_stands_still_until_it_may_go_on(start: Start) -> None:
    world = await start(
        Lines({"Hello": [Say("An answer.", "one", hold_after=2)]}), harness="command", family=FAMILY
    )
    asked = asyncio.ensure_future(ask(world, user("Hello")))
    await world.cells.held()
    assert world.calls() == []
    assert world.cells.samples[0].made == 2
    world.cells.go_on()
    await asked
    world.check()


async def test_another_proxy_goes_on_with_the_same_answer(start: Start) -> None:
    lines = Lines({"Hello": [Say("An answer of some words.", "one", hold_after=4)]})
    world = await start(lines, harness="command", family=FAMILY)
    asked = asyncio.ensure_future(ask(world, user("Hello")))
    await world.cells.held()
    await world.restart()
    assert (await asked)["status"] >= 500
    world.cells.go_on()
    answer = await ask(world, user("Hello"))
    assert answer["content"][0]["text"] == "An answer of some words."
    world.check()
    assert world.shape() == ["main: one"]
    (sample,) = world.cells.samples
    assert len(sample.request_ids) == 2


async def test_length_stops_and_engine_errors(start: Start) -> None:
    lines = Lines({"Hello": [Say("Half an", "one", stopped=False), Say("", error="no")]})
    world = await start(lines, harness="command", family=FAMILY)
    assert (await ask(world, user("Hello")))["stop_reason"] == "max_tokens"
    assert (await ask(world, user("Hello")))["status"] == 500
    world.check()
    assert world.cells.failed == ["no"]


async def test_refusals_and_cuts_happen_when_they_are_due(start: Start) -> None:
    lines = Lines({"Hello": [Say(f"Look.\n{call('Bash', command='ls')}", "one")]})
    faults = [Answer(1, 529), Cut(2, "content_block_stop")]
    world = await start(lines, harness="command", family=FAMILY, faults=faults)
    assert (await ask(world, user("Hello"), stream=True))["status"] == 529
    with pytest.raises(aiohttp.ClientPayloadError):
        await ask(world, user("Hello"), stream=True)
    again = await ask(world, user("Hello"))
    assert [block["type"] for block in again["content"]] == ["text", "tool_use"]
    world.check()
    assert world.shape() == ["main: one"]
    assert world.report().repeated_calls == 1
    assert world.faults.struck == faults


@pytest.mark.parametrize(("told", "role"), [(False, "unknown"), (True, "main")])
async def test_unknown_calls_are_main_only_if_the_run_says_so(
    start: Start, told: bool, role: str
) -> None:
    lines = Lines({"Hello": [Say("One.", "one")]})
    world = await start(lines, harness="codex", family=FAMILY, train_unknown=told)
    await ask(world, user("Hello"))
    world.check()
    assert world.shape() == [f"{role}: one"]
    assert world.calls()[0].role_why.startswith("codex table 1: no rule holds")


async def test_a_lost_token_is_found(start: Start) -> None:
    world = await start(Lines({"Hello": [Say("One.", "one")]}), harness="command", family=FAMILY)
    await ask(world, user("Hello"))
    world.cells.samples[0].answer.append(0)
    world.cells.samples[0].given += 1
    with pytest.raises(AssertionError, match="tokens of 'one'"):
        world.check()


def test_archives_cannot_leave_their_folder(tmp_path: Path) -> None:
    archive = tmp_path / "evil.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("package/../../evil")
        tar.addfile(member, io.BytesIO())
    with pytest.raises(tarfile.FilterError):
        unpack(archive, tmp_path / "inside")
    assert not (tmp_path / "evil").exists()


def test_a_package_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "claude.tgz"
    archive.write_bytes(b"not what its maker published")
    with pytest.raises(UserError, match="do not run it"):
        verify(PACKAGES["codex"], archive)
