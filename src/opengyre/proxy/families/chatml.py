"""Chat markup with <|im_start|> and <|im_end|>, as several families share it.

Invariant: every chunk starts with <|im_start|> and ends with <|im_end|> and a newline.
"""

import json
from collections.abc import Sequence
from typing import Literal

from tokenizers import Tokenizer

from opengyre.proxy.families.vocabulary import Vocabulary
from opengyre.proxy.messages import Tool, Turn

START, END = "<|im_start|>", "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"
CONTROLS = (START, END, END_OF_TEXT)
"""Tokens that no text of a turn may hold."""
ToolStyle = Literal["json", "signature"]


class ChatMarkup(Vocabulary):
    """What the families with this markup have in common."""

    generation_prompt = f"{START}assistant\n"
    turn_end = f"{END}\n"

    def __init__(self, tokenizer: Tokenizer, family: str) -> None:
        super().__init__(tokenizer)
        self.require(START, family)
        self.stop_ids = [self.require(END, family), *self.present([END_OF_TEXT])]

    def opening(self, before: Turn | None) -> str:
        return self.generation_prompt

    def render(self, turn: Turn) -> str:
        first = turn[0]
        if first.role == "tool":
            return f"{START}user{self._results([message.text for message in turn])}{END}\n"
        return f"{START}{first.role}\n{first.text}{END}\n"

    def _results(self, texts: Sequence[str]) -> str:
        return "".join(f"\n<tool_response>\n{text}\n</tool_response>" for text in texts)

    def _answer(self, ids: Sequence[int]) -> str:
        """The text of an answer without the token that ended it."""
        return self.decode(ids[:-1] if ids and ids[-1] in self.stop_ids else ids)


def system_chunk(parts: Sequence[str]) -> str:
    """The first chunk, of the parts that there are; empty when there are none."""
    content = "\n\n".join(part for part in parts if part)
    return f"{START}system\n{content}{END}\n" if content else ""


def is_clean(text: str) -> bool:
    """No control token inside."""
    return not any(mark in text for mark in CONTROLS)


def signature(tool: Tool) -> str:
    """Bash(command, timeout): the names of the properties and nothing else."""
    properties = tool.parameters.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    return f"{tool.name}({', '.join(names)})"


def schema(tool: Tool) -> str:
    """A tool as most published templates show it."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)
