"""Faulty names, and a good configuration to put them into."""

from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

from opengyre.config.run import RunConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz_"


def good() -> dict[str, Any]:
    """The smallest whole configuration, fresh each time."""
    return {
        "policy": {"model": "quickstart"},
        "tasks": {"train": "bundled:repair", "heldout": "bundled:repair"},
    }


def sections() -> dict[str, type[BaseModel]]:
    """By name of the table."""
    found = {}
    for name, field in RunConfig.model_fields.items():
        kind = field.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, BaseModel)
        found[name] = kind
    return found


def keys() -> list[tuple[str, str]]:
    """Every (table, key)."""
    return [(name, key) for name, kind in sections().items() for key in kind.model_fields]


@st.composite
def typos(draw: st.DrawFn, word: str) -> str:
    """The word with one letter left out, doubled, put in or swapped with its neighbour."""
    at = draw(st.integers(0, len(word) - 1))
    match draw(st.sampled_from(["drop", "double", "insert", "swap"])):
        case "drop":
            return word[:at] + word[at + 1 :]
        case "double":
            return word[:at] + word[at] + word[at:]
        case "insert":
            return word[:at] + draw(st.sampled_from(LETTERS)) + word[at:]
        case _:
            return word[:at] + word[at : at + 2][::-1] + word[at + 2 :]
