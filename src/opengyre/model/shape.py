"""The shape of a dense Qwen3, read from a transformers folder's config.json."""

import json
from dataclasses import dataclass
from pathlib import Path

from opengyre.core.errors import UserError

MODEL_TYPE = "qwen3"
ACTIVATION = "silu"
"""The only one that a published dense Qwen3 has."""


@dataclass(frozen=True)
class Qwen3Shape:
    """Sizes of a dense Qwen3 (names as in transformers' Qwen3Config)."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool

    def kv_floats_per_token(self) -> int:
        """Floats that one token's keys and values take over all layers."""
        return 2 * self.num_hidden_layers * self.num_key_value_heads * self.head_dim


def read_shape(folder: Path) -> Qwen3Shape:
    """Read config.json. Raises UserError when the folder is not a dense Qwen3."""
    wanted = f"a transformers folder of a dense Qwen3 at {folder}"
    raw = _read(folder / "config.json", wanted)
    found = raw.get("model_type")
    if found != MODEL_TYPE:
        raise UserError(
            wanted, f"model_type {found!r}", "use a folder whose config.json says model_type qwen3"
        )
    if raw.get("use_sliding_window") or raw.get("attention_bias"):
        raise UserError(wanted, "sliding-window or biased attention", "use a plain dense Qwen3")
    if raw.get("hidden_act", ACTIVATION) != ACTIVATION:
        raise UserError(wanted, f"hidden_act {raw['hidden_act']!r}", f"use one with {ACTIVATION}")
    return _shape_of(raw, wanted)


def _read(path: Path, wanted: str) -> dict[str, object]:
    if not path.is_file():
        raise UserError(wanted, "no config.json there", "set policy.model to such a folder")
    try:
        raw = json.loads(path.read_text())
    except (OSError, ValueError) as error:  # bad JSON and bad UTF-8 are ValueErrors
        raise UserError(
            wanted, f"unreadable config.json ({error})", "save the model again"
        ) from error
    if not isinstance(raw, dict):
        raise UserError(wanted, "a config.json without keys", "save the model again")
    return raw


def _shape_of(raw: dict[str, object], wanted: str) -> Qwen3Shape:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise UserError(wanted, f"rope_parameters {rope!r}", "save the model again")
    if rope.get("rope_type", "default") != "default":
        raise UserError(wanted, f"rope type {rope['rope_type']!r}", "use a model with plain RoPE")
    try:
        return Qwen3Shape(
            vocab_size=_int(raw, "vocab_size"),
            hidden_size=_int(raw, "hidden_size"),
            intermediate_size=_int(raw, "intermediate_size"),
            num_hidden_layers=_int(raw, "num_hidden_layers"),
            num_attention_heads=_int(raw, "num_attention_heads"),
            num_key_value_heads=_int(raw, "num_key_value_heads"),
            head_dim=_int(raw, "head_dim"),
            max_position_embeddings=_int(raw, "max_position_embeddings"),
            rms_norm_eps=float(str(raw.get("rms_norm_eps", 1e-6))),
            rope_theta=float(str(rope.get("rope_theta", raw.get("rope_theta", 1e6)))),
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise UserError(wanted, f"no {error} in config.json", "save the model again") from error
    except ValueError as error:
        raise UserError(
            wanted, f"a size in config.json: {error}", "save the model again"
        ) from error


def _int(raw: dict[str, object], key: str) -> int:
    return int(str(raw[key]))
