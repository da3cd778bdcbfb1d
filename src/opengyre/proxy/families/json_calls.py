"""Tool calls as JSON in <tool_call>: Qwen3's and Qwen2.5's, known as Hermes style.

Invariant: a call is exactly {"name": string, "arguments": object} between the tags; the JSON says
where it ends, so a closing tag inside a string closes nothing.
"""

from collections.abc import Sequence

from opengyre.proxy.families.base import ParsedCall
from opengyre.proxy.families.calls import (
    Split,
    find_calls,
    read_object,
    skip_space,
    split_calls,
    write_json,
)
from opengyre.proxy.families.chatml import CONTROLS, ToolStyle, schema, signature
from opengyre.proxy.messages import Tool, ToolCall

OPEN, CLOSE = "<tool_call>", "</tool_call>"
TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
TOOLS_AFTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
"""Both word for word from the published chat templates, which the weights were trained on."""


def show_tools(tools: Sequence[Tool], style: ToolStyle) -> str:
    """What the system turn says of the tools."""
    if not tools:
        return ""
    if style == "signature":
        return "\n".join(map(signature, tools))
    return TOOLS_BEFORE + "".join(f"\n{schema(tool)}" for tool in tools) + TOOLS_AFTER


def call_text(call: ToolCall) -> str:
    """A tool call as the published templates write it."""
    name = write_json(call.name, CONTROLS)
    arguments = write_json(call.arguments, CONTROLS)
    return f'{OPEN}\n{{"name": {name}, "arguments": {arguments}}}\n{CLOSE}'


def with_calls(text: str, calls: Sequence[ToolCall]) -> str:
    """An answer's text and its calls below it."""
    written = "\n".join(map(call_text, calls))
    return text + ("\n" if text and written else "") + written


def take_calls(text: str) -> Split:
    """The calls that can be read, and the text without them."""
    return split_calls(text, find_calls(text, OPEN, _read))


def _read(text: str, position: int) -> tuple[int, ParsedCall] | None:
    got = read_object(text, position)
    if got is None:
        return None
    end, value = skip_space(text, got[0]), got[1]
    if not text.startswith(CLOSE, end) or set(value) != {"name", "arguments"}:
        return None
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    return end + len(CLOSE), ParsedCall(name, arguments)
