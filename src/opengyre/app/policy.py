"""Is this folder a policy that the run can train? Asked before anything is started or written.

Invariant: a folder that passes has a dense Qwen3's sizes, a tokenizer that the model has rows for,
and room for the run's context. Weights are read by the cells, which say what is wrong with them.
"""

from pathlib import Path

from tokenizers import Tokenizer

from opengyre.core.errors import UserError
from opengyre.model.shape import read_shape
from opengyre.proxy.families.base import Family
from opengyre.proxy.families.chatml import ToolStyle
from opengyre.proxy.families.make import AUTO, detect_family, make_family


def read_tokenizer(folder: Path) -> Tokenizer:
    """The folder's tokenizer. Raises UserError."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise UserError(f"a model's folder at {folder}", found, "pass the one with tokenizer.json")
    file = folder / "tokenizer.json"
    wanted = f"a tokenizer at {file}"
    if not file.is_file():
        raise UserError(wanted, "no such file", "save the tokenizer into the model's folder")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing narrower
        raise UserError(wanted, f"an unreadable one ({error})", "save it again") from error


def open_family(folder: Path, name: str = AUTO, tool_style: ToolStyle = "json") -> Family:
    """The family of the model in this folder, with its tokenizer. Raises UserError."""
    tokenizer = read_tokenizer(folder)  # first: it says so if the folder is not there at all
    known = detect_family(folder) if name == AUTO else name
    return make_family(known, tokenizer, tool_style)


def check_policy(folder: Path, context_tokens: int) -> None:
    """Raises UserError when the model or its tokenizer cannot be used."""
    shape = read_shape(folder)
    if context_tokens > shape.max_position_embeddings:
        raise UserError(
            f"a context of {context_tokens} tokens",
            f"a model of {shape.max_position_embeddings} positions at {folder}",
            f"set policy.context_tokens to at most {shape.max_position_embeddings}",
        )
    largest = max(read_tokenizer(folder).get_vocab(with_added_tokens=True).values(), default=-1)
    if largest < 0:
        raise UserError(f"a tokenizer at {folder}", "one without any token", "save it again")
    if largest >= shape.vocab_size:
        raise UserError(
            f"a model with a row for each token of its tokenizer at {folder}",
            f"token {largest} and a vocab_size of {shape.vocab_size} in config.json",
            "use the tokenizer that the model was made with, or resize its embeddings",
        )
