"""A program that does anything to its histories, in all three dialects at once.

For every family: the policy sees what each request says, once and in order; each token that it
sampled is in the tree once; each fork has a reason; the ledger balances. Marks in all texts make the
first of these visible whatever a family's markup is.
"""

import asyncio
import copy
import json
import random
import re
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from opengyre.core.records import GenerateRequest
from opengyre.proxy.fakes import Line, first_asked
from opengyre.proxy.families.base import Family
from opengyre.proxy.messages import Message, ToolCall
from opengyre.tree.record import ExecutionTree
from tests.conformance.check import forks_have_reasons, ledger_balances
from tests.proxy.conftest import KEY, Start, World
from tests.proxy.families_for_tests import BASH, SMALL

MARK = re.compile(r"x\d+y")
DIALECTS = ("anthropic", "chat", "responses")
NOISE = [" <tool_call>", " </tool_call>", " <think>", " <|im_end|>", "\n\n", " é🙂", ' {"a":']
STEPS = 40
LONGEST = 400
"""Tokens of an answer, as the proxy of these tests has it."""


class Marks:
    """Words that occur once each."""

    def __init__(self, draw: random.Random) -> None:
        self._draw, self._count = draw, 0

    def text(self) -> str:
        self._count += 1
        noise = self._draw.choice(NOISE) if self._draw.random() < 0.3 else ""
        return f"x{self._count}y{noise}"


@dataclass
class Policy:
    """Says anything: calls, halves of calls, nothing; ends with any of its stop tokens, or none."""

    family: Family
    draw: random.Random
    marks: Marks
    said: dict[str, list[int]] = field(default_factory=dict)

    def __call__(self, request: GenerateRequest) -> Line:
        if request.request_id not in self.said:
            self.said[request.request_id] = self._answer()[:LONGEST]
        return self.said[request.request_id]

    def _answer(self) -> list[int]:
        draw = self.draw
        text = self.marks.text() if draw.random() < 0.8 else ""
        calls = tuple(
            ToolCall("c", "Bash", {"command": self.marks.text(), "timeout": draw.choice([5, None])})
            for _ in range(draw.choice([0, 1, 1, 2]))
        )
        message = Message("assistant", text, "", calls)
        ids = self.family.encode(self.family.body((message,), (BASH,)))
        if draw.random() < 0.1:
            ids = ids[: draw.randint(0, len(ids))]
        return ids if ids and draw.random() < 0.05 else [*ids, draw.choice(self.family.stop_ids)]


Turn = dict[str, Any]
"""role and text; calls of an assistant as (id, name, arguments); the call's id of a result."""


class Program:
    """Holds several conversations, and mistreats them."""

    def __init__(self, draw: random.Random, marks: Marks) -> None:
        self._draw, self._marks = draw, marks
        self.held: list[list[Turn]] = []

    def next(self) -> list[Turn]:
        """A conversation whose last turn is not the assistant's."""
        draw = self._draw
        if not self.held or draw.random() < 0.1:
            self.held.append([{"role": "user", "text": self._marks.text()}])
        turns = draw.choice(self.held[-5:])
        if draw.random() < 0.2:
            turns = copy.deepcopy(turns)
            self.held.append(turns)
        if draw.random() < 0.3 and len(turns) > 2:
            self._mistreat(turns)
        if turns[-1]["role"] == "assistant":
            turns.append({"role": "user", "text": self._marks.text()})
        return turns

    def _mistreat(self, turns: list[Turn]) -> None:
        place = self._draw.randrange(1, len(turns) - 1)
        match self._draw.randrange(6):
            case 0:
                del turns[place]
            case 1:
                del turns[place:]
            case 2:
                turns[place]["text"] = self._marks.text()
            case 3:
                turns[place], turns[place + 1] = turns[place + 1], turns[place]
            case 4:
                turns[place:place] = copy.deepcopy(self._draw.choice(self.held)[:2])
            case _:
                turns[place]["calls"] = [
                    (name, "Bash", {"command": self._marks.text()})
                    for name, *_ in turns[place].get("calls", [])
                ]

    def heard(self, turns: list[Turn], answer: Turn) -> None:
        """The answer, and the results of its calls in any order."""
        results = [
            {"role": "tool", "id": name, "text": self._marks.text()} for name, *_ in answer["calls"]
        ]
        self._draw.shuffle(results)
        turns += [answer, *results]


def sent(dialect: str, turns: list[Turn]) -> tuple[str, dict[str, Any]]:
    """(path, body) of a request."""
    parameters = BASH.parameters
    if dialect == "anthropic":
        tools = [{"name": "Bash", "input_schema": parameters}]
        return "messages", {"max_tokens": LONGEST, "messages": _blocks(turns), "tools": tools}
    if dialect == "chat":
        function = {"name": "Bash", "parameters": parameters}
        tools = [{"type": "function", "function": function}]
        return "chat/completions", {"messages": [_message(t) for t in turns], "tools": tools}
    tools = [{"type": "function", "name": "Bash", "parameters": parameters}]
    return "responses", {"input": [item for t in turns for item in _items(t)], "tools": tools}


def _blocks(turns: list[Turn]) -> list[dict[str, Any]]:
    made = []
    for turn in turns:
        if turn["role"] == "tool":
            kind = {"type": "tool_result", "tool_use_id": turn["id"], "content": turn["text"]}
            made.append({"role": "user", "content": [kind]})
            continue
        blocks = [{"type": "text", "text": turn["text"]}] if turn["text"] else []
        blocks += [
            {"type": "tool_use", "id": name, "name": tool, "input": given}
            for name, tool, given in turn.get("calls", [])
        ]
        made.append({"role": turn["role"], "content": blocks})
    return made


def _message(turn: Turn) -> dict[str, Any]:
    if turn["role"] == "tool":
        return {"role": "tool", "tool_call_id": turn["id"], "content": turn["text"]}
    calls = [
        {"id": name, "type": "function", "function": {"name": tool, "arguments": json.dumps(given)}}
        for name, tool, given in turn.get("calls", [])
    ]
    return {
        "role": turn["role"],
        "content": turn["text"],
        **({"tool_calls": calls} if calls else {}),
    }


def _items(turn: Turn) -> list[dict[str, Any]]:
    if turn["role"] == "tool":
        return [{"type": "function_call_output", "call_id": turn["id"], "output": turn["text"]}]
    said = [{"role": turn["role"], "content": turn["text"]}] if turn["text"] else []
    return said + [
        {"type": "function_call", "call_id": name, "name": tool, "arguments": json.dumps(given)}
        for name, tool, given in turn.get("calls", [])
    ]


def told(dialect: str, body: dict[str, Any]) -> tuple[str, Turn]:
    """(call id, the answer as a turn)."""
    if dialect == "anthropic":
        parts = body["content"]
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        uses = [part for part in parts if part["type"] == "tool_use"]
        calls = [(use["id"], use["name"], use["input"]) for use in uses]
    elif dialect == "chat":
        message = body["choices"][0]["message"]
        text, uses = message["content"] or "", message.get("tool_calls", [])
        named = [(use["id"], use["function"]) for use in uses]
        calls = [(name, use["name"], json.loads(use["arguments"])) for name, use in named]
    else:
        texts = [i["content"] for i in body["output"] if i["type"] == "message"]
        text = "".join(part["text"] for parts in texts for part in parts)
        uses = [item for item in body["output"] if item["type"] == "function_call"]
        calls = [(use["call_id"], use["name"], json.loads(use["arguments"])) for use in uses]
    name = body["id"][body["id"].index("call-") :]
    return name, {"role": "assistant", "text": text, "calls": calls}


def marks_of(turns: list[Turn]) -> list[str]:
    """In the order in which they are said."""
    said = [
        [turn["text"], *(given["command"] for *_, given in turn.get("calls", []))] for turn in turns
    ]
    return MARK.findall(" ".join(text for texts in said for text in texts))


async def talk(world: World, program: Program, draw: random.Random) -> dict[str, list[Turn]]:
    """What each call was asked, by its id."""
    asked: dict[str, list[Turn]] = {}
    async with aiohttp.ClientSession(headers={"x-api-key": KEY}) as client:
        for _ in range(STEPS):
            turns, dialect = program.next(), draw.choice(DIALECTS)
            path, body = sent(dialect, turns)
            before = copy.deepcopy(turns)
            times = 2 if draw.random() < 0.1 else 1  # a retry, or, once the first is read, anew
            answers = await asyncio.gather(
                *(_post(client, world, path, body) for _ in range(times))
            )
            asked |= {told(dialect, answer)[0]: before for answer in answers}
            program.heard(turns, told(dialect, answers[0])[1])
    return asked


async def _post(client: aiohttp.ClientSession, world: World, path: str, body: Any) -> Any:
    async with client.post(f"{world.url}/v1/{path}", json={"model": "m", **body}) as response:
        assert response.status == 200, await response.text()
        return await response.json()


@pytest.mark.parametrize("name", sorted(SMALL))
async def test_whatever_a_program_does_its_tree_is_exact(start: Start, name: str) -> None:
    draw = random.Random(f"program of {name}")
    family, marks = SMALL[name], Marks(draw)
    policy = Policy(family, draw, marks)
    world = await start(policy, family=family, context_tokens=100_000)
    asked = await talk(world, Program(draw, marks), draw)
    tree = ExecutionTree(world.calls)
    tree.check()
    prompts = {r.request_id: first_asked(r).prompt_ids for r in world.generator.requests}
    assert set(prompts) == set(asked) == {call.call_id for call in world.calls}
    for call in world.calls:
        prompt = tree.prompt_ids(call.call_id)
        assert prompt == list(prompts[call.call_id])
        assert call.output_ids == policy.said[call.call_id]
        assert sorted(MARK.findall(family.decode(prompt))) == sorted(marks_of(asked[call.call_id]))
    forks_have_reasons(world.calls)
    sampled = sum(map(len, policy.said.values()))
    for j_max in (1, 5, len(world.calls)):
        ledger_balances(tree, sampled, j_max)
