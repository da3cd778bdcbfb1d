"""Load and save transformers folders: config.json, model.safetensors, tokenizer files; no pickle."""

import json
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from opengyre.core.errors import UserError
from opengyre.model.qwen3 import Qwen3
from opengyre.model.shape import read_shape

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)
"""Copied along with the weights, so that a checkpoint is a whole policy."""


def load_model(folder: Path, dtype: torch.dtype = torch.float32) -> Qwen3:
    """Load a policy. Raises UserError for a folder that is not a whole dense Qwen3."""
    model = Qwen3(read_shape(folder))
    wanted = f"safetensors weights of a dense Qwen3 at {folder}"
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UserError(wanted, "no *.safetensors file", "save the model with safetensors")
    try:
        weights = {name: t for file in files for name, t in load_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(wanted, f"a damaged file ({error})", "save or copy it again") from error
    if model.shape.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    own = dict(model.named_weights())
    odd = sorted(own.keys() ^ weights.keys()) or sorted(
        n for n, t in own.items() if t.shape != weights[n].shape
    )
    if odd:
        raise UserError(
            wanted, f"missing, extra or misshapen: {', '.join(odd[:3])}", "save it again"
        )
    for name, tensor in own.items():
        tensor.copy_(weights[name])
    return model.to(dtype)


def save_model(model: Qwen3, folder: Path, like: Path) -> None:
    """Write a folder that transformers loads; config and tokenizer are copied from `like`."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = json.loads((like / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw, indent=2) + "\n")
    for name in TOKENIZER_FILES:
        if (like / name).is_file() and like.resolve() != folder.resolve():
            shutil.copyfile(like / name, folder / name)
    tensors = {name: t.detach().contiguous().clone() for name, t in model.named_weights()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
