"""Qwen3: reasoning in <think>, tool calls as JSON in <tool_call>.

Invariant: what is parsed is written again as the same answer. It differs from the published
template on purpose in one thing: reasoning of earlier turns is kept, since what was sampled is
never taken out of a context.
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from opengyre.proxy.families.base import Reply
from opengyre.proxy.families.chatml import ChatMarkup, ToolStyle, is_clean, system_chunk
from opengyre.proxy.families.json_calls import OPEN, show_tools, take_calls, with_calls
from opengyre.proxy.families.reasoning import split_thinking
from opengyre.proxy.messages import Tool, Turn


class Qwen3Family(ChatMarkup):
    """Dense and mixture-of-experts Qwen3, and small models trained with the same markup."""

    def __init__(self, tokenizer: Tokenizer, tool_style: ToolStyle = "json") -> None:
        super().__init__(tokenizer, "Qwen3")
        self._tool_style = tool_style

    def head(self, system: str, tools: Sequence[Tool]) -> str:
        return system_chunk([system, show_tools(tools, self._tool_style)])

    def body(self, turn: Turn, tools: Sequence[Tool] = ()) -> str:
        (message,) = turn
        thinking = message.thinking.strip("\n")
        if not thinking:
            return with_calls(message.text, message.calls)
        shown = message.text.lstrip("\n")
        return f"<think>\n{thinking}\n</think>\n\n" + with_calls(shown, message.calls)

    def parse(self, ids: Sequence[int], tools: Sequence[Tool] = ()) -> Reply:
        whole = self._answer(ids)
        thinking, rest, closed = split_thinking(whole)
        text, calls, tail = take_calls(rest)
        return Reply(
            text=text,
            thinking=thinking,
            calls=calls,
            malformed_calls=text.count(OPEN),
            faithful=closed and is_clean(whole) and not tail,
        )
