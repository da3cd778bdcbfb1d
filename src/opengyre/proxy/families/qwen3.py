"""Qwen3: chat markup with <|im_start|> and <|im_end|>, tool calls as JSON in <tool_call>.

Invariant: every chunk starts with <|im_start|> and ends with <|im_end|> and a newline. It differs
from the published template on purpose in one thing: reasoning of earlier turns is kept, since what
was sampled is never taken out of a context.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal

from tokenizers import Tokenizer

from opengyre.core.errors import UserError
from opengyre.proxy.families.base import ParsedCall, Reply
from opengyre.proxy.messages import Json, Tool, ToolCall, Turn

START, END = "<|im_start|>", "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
"""Both word for word from Qwen3's published chat template, which the weights were trained on."""


class Qwen3Family:
    """Dense Qwen3 models and small ones trained with the same markup."""

    generation_prompt = f"{START}assistant\n"
    turn_end = f"{END}\n"

    def __init__(
        self, tokenizer: Tokenizer, tool_style: Literal["json", "signature"] = "json"
    ) -> None:
        self._tokenizer = tokenizer
        self._tool_style = tool_style
        stop = [self._special(END)]
        extra = tokenizer.token_to_id(END_OF_TEXT)
        self._special(START)
        self.stop_ids: list[int] = stop if extra is None else [*stop, extra]

    def _special(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None or self.encode(token) != [found]:
            raise UserError(
                f"a tokeniser with {token} as one special token",
                "none" if found is None else "it split into several tokens",
                "use the tokenizer.json of a Qwen3 model",
            )
        return found

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        parts = [system] if system else []
        if tools:
            parts.append(self._show(tools))
        content = "\n\n".join(parts)
        return f"{START}system\n{content}{END}\n" if parts else ""

    def _show(self, tools: Sequence[Tool]) -> str:
        if self._tool_style == "signature":
            return "\n".join(map(signature, tools))
        return TOOLS_BEFORE + "".join(f"\n{schema(tool)}" for tool in tools) + TOOLS_AFTER

    def render(self, turn: Turn) -> str:
        first = turn[0]
        if first.role == "tool":
            results = "".join(
                f"\n<tool_response>\n{message.text}\n</tool_response>" for message in turn
            )
            return f"{START}user{results}{END}\n"
        return f"{START}{first.role}\n{first.text}{END}\n"

    def opening(self, before: Turn | None) -> str:
        return self.generation_prompt

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        (message,) = turn
        text = message.text
        if message.thinking:
            shown = text.lstrip("\n")
            text = f"<think>\n{message.thinking}\n</think>\n\n{shown}"
        calls = "\n".join(map(call_text, message.calls))
        return text + ("\n" if message.text and calls else "") + calls

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        stopped = bool(ids) and ids[-1] in self.stop_ids
        whole = self.decode(ids[:-1] if stopped else ids)
        thinking, text, closed = split_thinking(whole)
        text, calls, tail = split_calls(text)
        clean = not any(mark in whole for mark in (START, END, END_OF_TEXT))
        return Reply(
            text=text,
            thinking=thinking,
            calls=calls,
            malformed_calls=text.count("<tool_call>"),
            faithful=closed and clean and not tail,
        )


def signature(tool: Tool) -> str:
    """Bash(command, timeout): the names of the properties and nothing else."""
    properties = tool.parameters.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    return f"{tool.name}({', '.join(names)})"


def schema(tool: Tool) -> str:
    """A tool as the published template shows it."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def call_text(call: ToolCall) -> str:
    """A tool call as the published template writes it."""
    name = json.dumps(call.name, ensure_ascii=False)
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def split_thinking(text: str) -> tuple[str, str, bool]:
    """(reasoning, the rest, whether the reasoning was closed or absent)."""
    if not text.lstrip().startswith("<think>"):
        return "", text, True
    inside = text.lstrip().removeprefix("<think>")
    thinking, mark, rest = inside.partition("</think>")
    return thinking.strip("\n"), rest.lstrip("\n"), bool(mark)


def split_calls(text: str) -> tuple[str, tuple[ParsedCall, ...], bool]:
    """(text without its tool calls, the calls, whether text follows a call)."""
    calls: list[ParsedCall] = []
    between: list[str] = []
    position = 0
    for match in CALL.finditer(text):
        call = parse_call(match.group(1))
        if call is not None:
            between.append(text[position : match.start()])
            calls.append(call)
            position = match.end()
    if not calls:
        return (text if text.strip() else ""), (), False
    between.append(text[position:])
    kept = "\n".join(part.strip("\n") for part in between if part.strip())
    return kept, tuple(calls), any(part.strip() for part in between[1:])


def parse_call(text: str) -> ParsedCall | None:
    """A call, or None unless text is exactly {"name": string, "arguments": object}."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        return None
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return ParsedCall(name, arguments)


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key twice: the call would not survive being written again")
    return made


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")
