"""Qwen3.5 and Qwen3.6: reasoning that the prompt opens, tool calls as Qwen3-Coder's.

Invariant: what is parsed is written again as the same answer; the prompt ends with an open <think>,
so an answer without a closing one is reasoning and nothing else. It differs from the published
template on purpose: reasoning of earlier turns is kept (the template's preserve_thinking), and a
system message in the middle, which the template refuses, stands where it was sent.
"""

from collections.abc import Sequence
from dataclasses import replace

from tokenizers import Tokenizer

from opengyre.proxy.families.base import Reply
from opengyre.proxy.families.calls import find_calls, split_calls
from opengyre.proxy.families.chatml import (
    CONTROLS,
    END,
    START,
    ChatMarkup,
    is_clean,
    schema,
    system_chunk,
)
from opengyre.proxy.families.qwen3_coder import (
    CLOSING,
    OPEN,
    TOOLS_AFTER,
    TOOLS_BEFORE,
    call_text,
    read_call,
)
from opengyre.proxy.families.values import Ends, PlainValues
from opengyre.proxy.messages import Tool, Turn

VALUES = PlainValues(CLOSING, CONTROLS)
THOUGHT = "</think>"


class Qwen36Family(ChatMarkup):
    """Qwen3.5 and Qwen3.6 models, thinking."""

    generation_prompt = f"{ChatMarkup.generation_prompt}<think>\n"

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, "Qwen3.6")

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        if not tools:
            return f"{START}system\n{system.strip()}{END}\n" if system else ""
        shown = "".join(f"\n{schema(tool)}" for tool in tools)
        return system_chunk([TOOLS_BEFORE + shown + TOOLS_AFTER, system.strip()])

    def render(self, turn: Turn) -> str:
        return super().render(
            tuple(replace(message, text=message.text.strip()) for message in turn)
        )

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        (message,) = turn
        text = message.text.strip()
        calls = "\n".join(call_text(call, tools, VALUES) for call in message.calls)
        said = f"{text}\n\n{calls}" if text and calls else text + calls
        return f"{message.thinking.strip()}\n{THOUGHT}\n\n{said}"

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        whole = self._answer(ids)
        thinking, closed, rest = whole.partition(THOUGHT)
        ends = Ends(CLOSING, rest)
        found = find_calls(rest, OPEN, lambda text, start: read_call(text, start, tools, ends))
        text, calls, tail = split_calls(rest.lstrip("\n") if not found else rest, found)
        return Reply(
            text=text,
            thinking=thinking.strip("\n"),
            calls=calls,
            malformed_calls=text.count(OPEN),
            faithful=bool(closed) and is_clean(whole) and not tail,
        )
