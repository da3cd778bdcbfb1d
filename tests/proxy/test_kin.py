"""A compaction without a mark of its own is ranked by what it shares with earlier calls."""

from typing import Any

import aiohttp
import msgspec
import pytest

from opengyre.core.reasons import Role
from opengyre.proxy.dialects.responses_items import Item, read_items
from tests.proxy.conftest import KEY, Start, World

TOOL = {"type": "function", "function": {"name": "bash", "parameters": {}}}
CALL = '<tool_call>\n{"name": "bash", "arguments": {}}\n</tool_call>'


async def ask(world: World, system: str, *messages: Any, **headers: str) -> Any:
    said = [{"role": "system", "content": system}, *messages]
    tools = {} if "summari" in system else {"tools": [TOOL]}
    sent = {"model": "m", "messages": said, **tools}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {KEY}", **named}) as session,
        session.post(f"{world.url}/v1/chat/completions", json=sent) as response,
    ):
        return (await response.json())["choices"][0]["message"]


USER = {"role": "user", "content": "Go."}


def result(reply: Any) -> Any:
    return {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "x"}


@pytest.mark.parametrize(
    ("opening", "role"),
    [
        ("You are Qwen Code, an agent", Role.MAIN_SUMMARY),
        ("You are a general-purpose subagent", Role.SUB_AGENT_SUMMARY),
    ],
)
async def test_qwen_codes_by_its_tool_calls(start: Start, opening: str, role: Role) -> None:
    world = await start([CALL, "A summary."], harness="qwen-code")
    reply = await ask(world, opening, USER)
    summariser = "You are the component that summarizes a conversation when"
    await ask(world, summariser, USER, reply, result(reply))
    assert [call.role for call in world.calls][1:] == [role]


@pytest.mark.parametrize(
    ("below", "role"),
    [({}, Role.MAIN_SUMMARY), ({"x_parent_session_id": "p"}, Role.SUB_AGENT_SUMMARY)],
)
async def test_opencodes_by_its_session(start: Start, below: dict[str, str], role: Role) -> None:
    world = await start([CALL, "A summary.", "Another."], harness="opencode")
    await ask(world, "You are opencode", USER, x_session_id="s", **below)
    for _ in range(2):
        summariser = "You are a context summarization agent."
        await ask(world, summariser, USER, x_session_id="s")
    assert [call.role for call in world.calls][1:] == [role, role]


def test_a_part_of_a_cut_answer_is_not_merged_with_the_next_answer() -> None:
    """As Codex sends it; the items of one answer are one message."""

    def said(answer: str, text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text}]
        return {"type": "message", "id": f"msg_{answer}", "role": "assistant", "content": content}

    call = {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "sh", "arguments": "{}"}
    thought = {"type": "reasoning", "id": "rs_c2", "summary": []}
    items = [said("c1", "A part."), thought, said("c2", "All."), call]
    messages = read_items(msgspec.convert(items, list[Item]))
    assert [message.text for message in messages] == ["A part.", "All."]
    assert [len(message.calls) for message in messages] == [0, 1]
