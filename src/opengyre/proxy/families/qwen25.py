"""Qwen2.5: no reasoning, tool calls as JSON in <tool_call> (Hermes style).

Invariant: what is parsed is written again as the same answer.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from opengyre.proxy.families.base import Reply
from opengyre.proxy.families.chatml import ChatMarkup, ToolStyle, is_clean, system_chunk
from opengyre.proxy.families.json_calls import OPEN, show_tools, take_calls, with_calls
from opengyre.proxy.messages import Tool, Turn

DEFAULT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
"""The published template says it where a conversation has no system text."""


class Qwen25Family(ChatMarkup):
    """Qwen2.5 and Qwen2.5-Coder, and models tuned with their template."""

    def __init__(self, tokenizer: Tokenizer, tool_style: ToolStyle = "json") -> None:
        super().__init__(tokenizer, "Qwen2.5")
        self._tool_style = tool_style

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        return system_chunk([system or DEFAULT_SYSTEM, show_tools(tools, self._tool_style)])

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        (message,) = turn
        return with_calls(message.text, message.calls)

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        whole = self._answer(ids)
        text, calls, tail = take_calls(whole)
        return Reply(
            text=text,
            calls=calls,
            malformed_calls=text.count(OPEN),
            faithful=is_clean(whole) and not tail,
        )
