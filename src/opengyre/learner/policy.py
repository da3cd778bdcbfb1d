"""A fresh small policy: dense Qwen3 with weights of standard deviation 1/sqrt(hidden).

transformers' own 0.02 is far too small at hidden sizes near 100: such a model did not even learn to
copy a file name, which one with 1/sqrt(hidden) did in 100 steps.
"""

import json
from pathlib import Path

import torch

from opengyre.model.folder import save_model
from opengyre.model.qwen3 import Qwen3
from opengyre.model.shape import read_shape

TRANSFORMERS = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "use_cache": True,
    "use_sliding_window": False,
    "dtype": "float32",
}
"""What transformers wants in config.json beside the sizes."""


def new_policy(config: dict[str, object], seed: int, folder: Path) -> Qwen3:
    """Make a policy of these sizes (names of Qwen3Config, special token ids included) and save it.

    The folder is then one that transformers loads. Raises UserError for missing sizes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(TRANSFORMERS | config, indent=2) + "\n")
    shape = read_shape(folder)
    deviation = shape.hidden_size**-0.5
    whole = TRANSFORMERS | config | {"initializer_range": deviation}
    path.write_text(json.dumps(whole, indent=2) + "\n")
    model = Qwen3(shape)
    source = torch.Generator().manual_seed(seed)
    for _, weight in model.named_weights():
        if weight.dim() == 2:  # norms stay at 1
            weight.normal_(0.0, deviation, generator=source)
    save_model(model, folder, folder)
    return model
