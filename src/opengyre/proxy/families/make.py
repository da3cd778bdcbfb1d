"""Which family a model is of: by name, or told by its folder.

Invariant: a family is never guessed where two could fit. The chat template decides; without one the
model's type does, if all models of that type share a template. What neither names is refused.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from opengyre.core.errors import UserError
from opengyre.proxy.families.base import Family
from opengyre.proxy.families.chatml import ToolStyle
from opengyre.proxy.families.deepseek import DeepSeekFamily
from opengyre.proxy.families.glm import GlmFamily
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.families.qwen3_coder import Qwen3CoderFamily
from opengyre.proxy.families.qwen25 import Qwen25Family
from opengyre.proxy.families.qwen36 import Qwen36Family

AUTO = "auto"
"""Ask the model's folder."""


@dataclass(frozen=True)
class Entry:
    """A family that can be chosen, and how its models are told."""

    make: Callable[[Tokenizer, ToolStyle], Family]
    has: tuple[str, ...]
    """All of these are in its chat template."""
    lacks: tuple[str, ...] = ()
    """None of these is."""
    model_type: str | None = None
    """The type in config.json that only this family has."""
    styles: tuple[ToolStyle, ...] = ("json",)
    """Ways to show tools that it knows."""


FAMILIES: dict[str, Entry] = {
    "qwen3": Entry(
        Qwen3Family,
        has=("<|im_start|>", "<tool_call>", "<function-name>"),
        lacks=("You are Qwen, created by", "<parameter="),
        model_type="qwen3",
        styles=("json", "signature"),
    ),
    "qwen3-coder": Entry(
        lambda tokenizer, _style: Qwen3CoderFamily(tokenizer),
        has=("<|im_start|>", "<function=", "<parameter="),
        lacks=("<think>",),
    ),
    "qwen3.6": Entry(
        lambda tokenizer, _style: Qwen36Family(tokenizer),
        has=("<parameter=", "No user query found in messages.", "enable_thinking is false"),
        lacks=("Reasoning effort",),
    ),
    "qwen2.5": Entry(
        Qwen25Family,
        has=("<|im_start|>", "<tool_call>", "You are Qwen, created by"),
        lacks=("<think>", "<parameter="),
        model_type="qwen2",
        styles=("json", "signature"),
    ),
    "glm-4.5": Entry(
        lambda tokenizer, _style: GlmFamily(tokenizer),
        has=("<|observation|>", "{function-name}\n<arg_key>"),
        model_type="glm4_moe",
    ),
    "deepseek-v3.1": Entry(
        lambda tokenizer, _style: DeepSeekFamily(tokenizer),
        has=("<｜Assistant｜>", "<｜tool▁calls▁begin｜>", "</think>"),
        lacks=("```json",),
    ),
}


def make_family(name: str, tokenizer: Tokenizer, tool_style: ToolStyle = "json") -> Family:
    """The family of that name. Raises UserError for an unknown one or a foreign tokeniser."""
    entry = FAMILIES.get(name)
    if entry is None:
        raise UserError("a model family", repr(name), f"choose one of {_names()}")
    if tool_style not in entry.styles:
        raise UserError(
            f"a way to show tools that {name} knows",
            f"policy.tool_style = {tool_style!r}",
            f"choose one of {', '.join(entry.styles)}",
        )
    return entry.make(tokenizer, tool_style)


def detect_family(folder: Path) -> str:
    """The name of the family that the model in this folder is of. Raises UserError."""
    template = read_template(folder)
    model_type = _read_json(folder / "config.json").get("model_type")
    if template is None:
        fits = [name for name, entry in FAMILIES.items() if entry.model_type == model_type]
        found = f"no chat template and model_type {model_type!r}"
    else:
        fits = [name for name, entry in FAMILIES.items() if _fits(entry, template)]
        found = f"a chat template that fits {' and '.join(fits) or 'none of them'}"
    if len(fits) != 1:
        raise UserError(
            f"at {folder} a model of one of the families {_names()}",
            found,
            "name the family that it was trained with: policy.family",
        )
    return fits[0]


def read_template(folder: Path) -> str | None:
    """The chat template, wherever the folder keeps it; the one for tools if there are several."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    for name in ("tokenizer_config.json", "chat_template.json"):
        found = _read_json(folder / name).get("chat_template")
        if isinstance(found, str):
            return found
        if isinstance(found, list):
            named = {str(one.get("name")): str(one.get("template")) for one in found}
            return named.get("tool_use") or named.get("default")
    return None


def _fits(entry: Entry, template: str) -> bool:
    has = all(mark in template for mark in entry.has)
    return has and not any(mark in template for mark in entry.lacks)


def _names() -> str:
    return ", ".join(FAMILIES)


def _read_json(file: Path) -> dict[str, object]:
    """A file's JSON object; empty when there is no file. Raises UserError."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"JSON at {file}", str(error), "save the model's folder again") from error
    return value if isinstance(value, dict) else {}
