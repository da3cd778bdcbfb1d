"""Qwen3-Coder: no reasoning, tool calls as <function=NAME> with a <parameter=KEY> for each argument.

Invariant: what is parsed is written again as the same answer. A parameter's text is everything
between its tags but one newline at either end, and only a closing tag that the call goes on after
closes it.
"""

import json
import re
from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer

from opengyre.proxy.families.base import ParsedCall, Reply
from opengyre.proxy.families.calls import find_calls, properties, split_calls
from opengyre.proxy.families.chatml import CONTROLS, ChatMarkup, is_clean, system_chunk
from opengyre.proxy.families.values import Ends, PlainValues
from opengyre.proxy.messages import Json, Tool, ToolCall, Turn

OPEN, CLOSE = "<tool_call>", "</tool_call>"
CLOSING = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
FUNCTION = re.compile(r"\s*<function=([^>\n]+)>")
PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>")
END = re.compile(r"\s*</function>\s*</tool_call>")
VALUES = PlainValues(CLOSING, CONTROLS, python_names=True)
DEFAULT_SYSTEM = (
    "You are Qwen, a helpful AI assistant that can interact with a computer to solve tasks."
)
"""The published template says it where there are tools and no system text."""
TOOLS_BEFORE = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
TOOLS_AFTER = (
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO "
    "suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\n"
    "value_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second "
    "parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n"
    "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
    "function call in natural language BEFORE the function call, but NOT after\n- If there is no "
    "function call available, answer the question like normal with your current knowledge and do "
    "not tell the user about function calls\n</IMPORTANT>"
)
"""Both word for word from the published chat template, which the weights were trained on."""


class Qwen3CoderFamily(ChatMarkup):
    """Qwen3-Coder models."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, "Qwen3-Coder")

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        if not tools:
            return system_chunk([system])
        shown = TOOLS_BEFORE + "".join(map(show_tool, tools)) + TOOLS_AFTER
        return system_chunk([system or DEFAULT_SYSTEM, shown])

    def _results(self, texts: Sequence[str]) -> str:
        return "\n" + "".join(f"<tool_response>\n{text}\n</tool_response>\n" for text in texts)

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        (message,) = turn
        if not message.calls:
            return message.text
        text = message.text.strip()
        calls = "\n".join(call_text(call, tools) for call in message.calls)
        return f"{text}\n\n{calls}" if text else calls

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        whole = self._answer(ids)
        ends = Ends(CLOSING, whole)
        found = find_calls(whole, OPEN, lambda text, start: read_call(text, start, tools, ends))
        text, calls, tail = split_calls(whole, found)
        return Reply(
            text=text,
            calls=calls,
            malformed_calls=text.count(OPEN),
            faithful=is_clean(whole) and not tail,
        )


def call_text(call: ToolCall, tools: Sequence[Tool], values: PlainValues = VALUES) -> str:
    """A call as the published template writes it."""
    schemas = properties(tools, call.name)
    arguments = call.arguments if isinstance(call.arguments, dict) else {"input": call.arguments}
    written = "".join(
        f"<parameter={key}>\n{values.write(value, schemas.get(key))}\n</parameter>\n"
        for key, value in arguments.items()
    )
    return f"{OPEN}\n<function={call.name}>\n{written}</function>\n{CLOSE}"


def read_call(
    text: str, position: int, tools: Sequence[Tool], ends: Ends
) -> tuple[int, ParsedCall] | None:
    """(where it ends, the call that begins here), or None."""
    function = FUNCTION.match(text, position)
    if function is None:
        return None
    name, position = function.group(1), function.end()
    schemas = properties(tools, name)
    arguments: dict[str, Json] = {}
    while (found := PARAMETER.match(text, position)) is not None:
        key, closed = found.group(1), ends.after(found.end())
        if key in arguments or closed is None:
            return None
        value = text[found.end() : closed].removeprefix("\n").removesuffix("\n")
        arguments[key] = VALUES.read(value, schemas.get(key))
        position = closed + len("</parameter>")
    end = END.match(text, position)
    return (end.end(), ParsedCall(name, arguments)) if end else None


def show_tool(tool: Tool) -> str:
    """A tool as the published template shows it: its schema in tags of its own."""
    named = tool.parameters.get("properties")
    fields = named.items() if isinstance(named, dict) else []
    return (
        f"\n<function>\n<name>{tool.name}</name>"
        f"\n<description>{tool.description.strip()}</description>\n<parameters>"
        + "".join(_show_parameter(name, field) for name, field in fields)
        + _show_rest(tool.parameters, {"type", "properties"})
        + "\n</parameters>\n</function>"
    )


def _show_parameter(name: str, schema: Json) -> str:
    shown = f"\n<parameter>\n<name>{name}</name>"
    if isinstance(schema, dict):
        if "type" in schema:
            shown += f"\n<type>{schema['type']}</type>"
        if "description" in schema:
            shown += f"\n<description>{str(schema['description']).strip()}</description>"
        shown += _show_rest(schema, {"name", "type", "description"})
    return shown + "\n</parameter>"


def _show_rest(schema: Mapping[str, Json], shown: set[str]) -> str:
    rest = [(key, value) for key, value in schema.items() if key not in shown]
    return "".join(f"\n<{key}>{_show_value(value)}</{key}>" for key, value in rest)


def _show_value(value: Json) -> str:
    """Containers as JSON, the rest as the template's engine prints it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
