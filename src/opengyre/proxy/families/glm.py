"""GLM-4.5 and GLM-4.6: turns end where the next role's token begins.

Invariant: every chunk starts with a role's token and has no end of its own; the token that stops an
answer, <|user|> or <|observation|>, is the first of the turn that follows. It differs from the
published template on purpose in one thing: reasoning of earlier turns is kept, since what was
sampled is never taken out of a context.
"""

import re
from collections.abc import Sequence

from tokenizers import Tokenizer

from opengyre.proxy.families.base import ParsedCall, Reply
from opengyre.proxy.families.calls import find_calls, properties, skip_space, split_calls
from opengyre.proxy.families.chatml import schema
from opengyre.proxy.families.reasoning import split_thinking
from opengyre.proxy.families.values import Ends, PlainValues
from opengyre.proxy.families.vocabulary import Vocabulary
from opengyre.proxy.messages import Json, Tool, ToolCall, Turn

START = "[gMASK]<sop>"
SYSTEM, USER, ASSISTANT, OBSERVATION = "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"
END_OF_TEXT = "<|endoftext|>"
CONTROLS = ("[gMASK]", "<sop>", SYSTEM, USER, ASSISTANT, OBSERVATION, END_OF_TEXT)
OPEN, CLOSE = "<tool_call>", "</tool_call>"
CLOSING = re.compile(r"</arg_value>(?=\s*(?:<arg_key>|</tool_call>))")
NAME = re.compile(r"\s*([^<\s][^<\n]*)\s*(?=<arg_key>|</tool_call>)")
ARGUMENT = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>")
VALUES = PlainValues(CLOSING, CONTROLS)
TOOLS_BEFORE = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
)
TOOLS_AFTER = (
    "</tools>\n\nFor each function call, output the function name and arguments within the "
    "following XML format:\n<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n"
    "<arg_value>{arg-value-1}</arg_value>\n<arg_key>{arg-key-2}</arg_key>\n"
    "<arg_value>{arg-value-2}</arg_value>\n...\n</tool_call>"
)
"""Both word for word from the published chat template, which the weights were trained on."""


class GlmFamily(Vocabulary):
    """GLM-4.5, GLM-4.5-Air and GLM-4.6."""

    turn_end = ""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        roles = [self.require(token, "GLM-4.5") for token in (USER, OBSERVATION)]
        for token in ("[gMASK]", "<sop>", SYSTEM, ASSISTANT):
            self.require(token, "GLM-4.5")
        self.stop_ids = [*roles, *self.present([END_OF_TEXT])]

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        shown = "".join(f"{schema(tool)}\n" for tool in tools)
        parts = [f"{TOOLS_BEFORE}{shown}{TOOLS_AFTER}"] if tools else []
        parts += [system] if system else []
        return START + "".join(f"{SYSTEM}\n{part}" for part in parts)

    def render(self, turn: Turn) -> str:
        first = turn[0]
        if first.role == "tool":
            results = "".join(
                f"\n<tool_response>\n{message.text}\n</tool_response>" for message in turn
            )
            return OBSERVATION + results
        return f"{SYSTEM if first.role == 'system' else USER}\n{first.text}"

    def opening(self, before: Turn | None) -> str:
        return ASSISTANT

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        (message,) = turn
        text = message.text.strip()
        calls = "".join(f"\n{call_text(call, tools)}" for call in message.calls)
        return (
            f"\n<think>{message.thinking.strip()}</think>" + (f"\n{text}" if text else "") + calls
        )

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        whole = self.decode(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)
        thinking, rest, closed = split_thinking(whole)
        ends = Ends(CLOSING, rest)
        found = find_calls(rest, OPEN, lambda text, start: read_call(text, start, tools, ends))
        text, calls, tail = split_calls(rest.removeprefix("\n") if not found else rest, found)
        clean = not any(mark in whole for mark in CONTROLS)
        return Reply(
            text=text,
            thinking=thinking,
            calls=calls,
            malformed_calls=text.count(OPEN),
            faithful=closed and clean and not tail,
        )


def call_text(call: ToolCall, tools: Sequence[Tool]) -> str:
    """A call as the published template writes it."""
    schemas = properties(tools, call.name)
    arguments = call.arguments if isinstance(call.arguments, dict) else {"input": call.arguments}
    written = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{VALUES.write(value, schemas.get(key))}</arg_value>\n"
        for key, value in arguments.items()
    )
    return f"{OPEN}{call.name}\n{written}{CLOSE}"


def read_call(
    text: str, position: int, tools: Sequence[Tool], ends: Ends
) -> tuple[int, ParsedCall] | None:
    """(where it ends, the call that begins here), or None."""
    named = NAME.match(text, position)
    if named is None:
        return None
    name, position = named.group(1).strip(), named.end()
    schemas = properties(tools, name)
    arguments: dict[str, Json] = {}
    while (found := ARGUMENT.match(text, position)) is not None:
        key, closed = found.group(1).strip(), ends.after(found.end())
        if key in arguments or closed is None:
            return None
        arguments[key] = VALUES.read(text[found.end() : closed], schemas.get(key))
        position = closed + len("</arg_value>")
    end = skip_space(text, position)
    if not text.startswith(CLOSE, end):
        return None
    return end + len(CLOSE), ParsedCall(name, arguments)
