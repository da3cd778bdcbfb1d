"""DeepSeek-V3.1, not thinking: tool calls as a section of special tokens.

Invariant: an assistant's turn after tool results has no opening, after anything else it opens with
<｜Assistant｜></think>. Two things differ from the published template on purpose: a system message
in the middle is shown as the user's, since the template would put it before all turns and so change
every token after it, and reasoning that a harness brings from elsewhere is left out everywhere.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from opengyre.proxy.families.base import ParsedCall, Reply
from opengyre.proxy.families.calls import (
    Found,
    find_calls,
    read_object,
    skip_space,
    split_calls,
    write_json,
)
from opengyre.proxy.families.vocabulary import Vocabulary
from opengyre.proxy.messages import Tool, ToolCall, Turn

BEGIN, END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT, NO_THOUGHT = "<｜User｜>", "<｜Assistant｜>", "</think>"
CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
OUTPUT_BEGIN, OUTPUT_END = "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"
ROLES = (BEGIN, END, USER, ASSISTANT, OUTPUT_BEGIN, OUTPUT_END)
"""Tokens that no answer may hold."""
CONTROLS = (*ROLES, CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR)
"""Tokens that no argument may hold."""
TOOLS_BEFORE = "## Tools\nYou have access to the following tools:\n"
TOOLS_AFTER = (
    "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n"
    f"{CALLS_BEGIN}{CALL_BEGIN}tool_call_name{SEPARATOR}tool_call_arguments{CALL_END}"
    "{additional_tool_calls}"
    f"{CALLS_END}\n\nWhere:\n"
    "- `tool_call_name` must be an exact match to one of the available tools\n"
    "- `tool_call_arguments` must be valid JSON that strictly follows the tool's Parameters Schema\n"
    "- For multiple tool calls, chain them directly without separators or spaces"
)
"""Both word for word from the published model card, which the weights were trained on."""


class DeepSeekFamily(Vocabulary):
    """DeepSeek-V3.1 and V3.1-Terminus in their non-thinking mode."""

    turn_end = END

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        for token in (*CONTROLS, NO_THOUGHT):
            self.require(token, "DeepSeek-V3.1")
        self.stop_ids = [self.require(END, "DeepSeek-V3.1")]

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        shown = TOOLS_BEFORE + "".join(map(show_tool, tools)) + TOOLS_AFTER if tools else ""
        return BEGIN + "\n\n".join(part for part in (system, shown) if part)

    def render(self, turn: Turn) -> str:
        if turn[0].role == "tool":
            return "".join(f"{OUTPUT_BEGIN}{message.text}{OUTPUT_END}" for message in turn)
        return f"{USER}{turn[0].text}"

    def opening(self, before: Turn | None) -> str:
        after_results = before is not None and before[0].role == "tool"
        return "" if after_results else ASSISTANT + NO_THOUGHT

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        (message,) = turn
        calls = "".join(map(call_text, message.calls))
        return message.text + (f"{CALLS_BEGIN}{calls}{CALLS_END}" if calls else "")

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        whole = self.decode(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)
        found = _sections(whole, find_calls(whole, CALL_BEGIN, _read))
        text, calls, tail = split_calls(whole, found)
        clean = not any(mark in whole for mark in ROLES)
        return Reply(
            text=text,
            calls=calls,
            malformed_calls=text.count(CALL_BEGIN),
            faithful=clean and not tail,
        )


def call_text(call: ToolCall) -> str:
    """A call as the published template writes it."""
    return f"{CALL_BEGIN}{call.name}{SEPARATOR}{write_json(call.arguments, CONTROLS)}{CALL_END}"


def show_tool(tool: Tool) -> str:
    """A tool as the published model card shows it."""
    parameters = write_json(tool.parameters, CONTROLS)
    return f"\n### {tool.name}\nDescription: {tool.description}\n\nParameters: {parameters}\n"


def _sections(text: str, found: list[Found]) -> list[Found]:
    """The first and the last call take the marks of their section with them."""
    if found and text.endswith(CALLS_BEGIN, 0, found[0].start):
        found[0] = found[0]._replace(start=found[0].start - len(CALLS_BEGIN))
    if found and text.startswith(CALLS_END, found[-1].end):
        found[-1] = found[-1]._replace(end=found[-1].end + len(CALLS_END))
    return found


def _read(text: str, position: int) -> tuple[int, ParsedCall] | None:
    separator = text.find(SEPARATOR, position)
    name = text[position:separator].strip() if separator >= 0 else ""
    if not name or "<｜" in name:
        return None
    got = read_object(text, separator + len(SEPARATOR))
    if got is None:
        return None
    end = skip_space(text, got[0])
    if not text.startswith(CALL_END, end):
        return None
    return end + len(CALL_END), ParsedCall(name, got[1])
