"""Our Qwen3 is transformers' Qwen3: the same logits, the same folders."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from opengyre.core.errors import UserError
from opengyre.model.folder import TOKENIZER_FILES, load_model, save_model
from opengyre.model.qwen3 import Qwen3, causal_attend
from opengyre.model.shape import read_shape

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(120)  # importing transformers takes most of it

SIZES = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,  # not hidden_size / heads, as in the published models
    "max_position_embeddings": 64,
}


def theirs(*, tied: bool, seed: int = 0) -> Any:
    """A random model of transformers with norms that are not all 1."""
    config = transformers.Qwen3Config(**SIZES, tie_word_embeddings=tied, initializer_range=0.2)
    config.attn_implementation = "eager"
    torch.manual_seed(seed)
    model = transformers.Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.uniform_(0.5, 1.5)
    return model


@torch.no_grad()
def our_logits(model: Qwen3, ids: torch.Tensor, start: int = 0) -> torch.Tensor:
    positions = torch.arange(start, start + len(ids))
    return model.logits(model.hidden(ids, positions, causal_attend))


@torch.no_grad()
def their_logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(ids[None]).logits[0]
    return logits


def prompt(length: int = 40) -> torch.Tensor:
    return torch.randint(SIZES["vocab_size"], (length,), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("tied", [True, False])
def test_logits_equal_transformers(tmp_path: Path, tied: bool) -> None:
    model = theirs(tied=tied)
    model.save_pretrained(tmp_path)
    expected = their_logits(model, prompt())
    torch.testing.assert_close(
        our_logits(load_model(tmp_path), prompt()), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_folder_is_the_same_model_to_both(tmp_path: Path, tied: bool) -> None:
    theirs(tied=tied).save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    with torch.no_grad():
        for _, weight in ours.named_weights():
            weight.mul_(1.1)
    save_model(ours, tmp_path / "ours", like=tmp_path / "theirs")
    again = load_model(tmp_path / "ours")
    for (name, one), (same, two) in zip(ours.named_weights(), again.named_weights(), strict=True):
        assert name == same
        assert torch.equal(one, two)
    read = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "ours").eval()
    torch.testing.assert_close(
        their_logits(read, prompt()), our_logits(ours, prompt()), atol=1e-4, rtol=0
    )


def test_only_distances_between_positions_count(tmp_path: Path) -> None:
    theirs(tied=True).save_pretrained(tmp_path)
    model, ids = load_model(tmp_path), prompt(20)
    torch.testing.assert_close(
        our_logits(model, ids), our_logits(model, ids, start=30), atol=1e-4, rtol=0
    )


def test_weights_in_several_files_are_one_model(tmp_path: Path) -> None:
    model = theirs(tied=False)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    torch.testing.assert_close(
        our_logits(load_model(tmp_path), prompt()),
        their_logits(model, prompt()),
        atol=1e-4,
        rtol=0,
    )


def test_a_saved_folder_has_the_tokeniser_and_nothing_of_the_optimiser(tmp_path: Path) -> None:
    like = tmp_path / "like"
    theirs(tied=True).save_pretrained(like)
    for name in TOKENIZER_FILES:
        (like / name).write_text(f'"{name}"')
    (like / "notes.txt").write_text("mine")
    save_model(load_model(like), tmp_path / "out", like)
    expected = {"config.json", "model.safetensors", *TOKENIZER_FILES}
    assert {path.name for path in (tmp_path / "out").iterdir()} == expected


# ---- bad folders --------------------------------------------------------------------------------


def config(**changes: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return spoil


def without(key: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        raw = json.loads(path.read_text())
        del raw[key]
        path.write_text(json.dumps(raw))

    return spoil


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "model.safetensors"
        found = load_file(path)
        change(found)
        save_file(found, path, metadata={"format": "pt"})

    return spoil


NORM = "model.norm.weight"


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        pytest.param(lambda f: (f / "config.json").unlink(), "no config.json", id="no config"),
        pytest.param(
            lambda f: (f / "config.json").write_text('{"model_type": '),
            "unreadable config.json",
            id="bad JSON",
        ),
        pytest.param(
            lambda f: (f / "config.json").write_bytes(b"\xff\xfe"),
            "unreadable config.json",
            id="bad UTF-8",
        ),
        pytest.param(
            lambda f: (f / "config.json").write_text("[]"), "without keys", id="not an object"
        ),
        pytest.param(config(hidden_size="big"), "'big'", id="a size that is a word"),
        pytest.param(config(hidden_act="gelu"), "hidden_act 'gelu'", id="another activation"),
        pytest.param(config(rope_parameters=3), "rope_parameters 3", id="positions that are 3"),
        pytest.param(config(model_type="llama"), "model_type 'llama'", id="other model"),
        pytest.param(config(model_type="qwen3_moe"), "model_type 'qwen3_moe'", id="experts"),
        pytest.param(without("model_type"), "model_type None", id="no model type"),
        pytest.param(config(use_sliding_window=True), "sliding-window", id="sliding window"),
        pytest.param(config(attention_bias=True), "biased attention", id="bias"),
        pytest.param(
            config(rope_parameters={"rope_type": "yarn", "factor": 4.0}),
            "rope type 'yarn'",
            id="scaled positions",
        ),
        pytest.param(without("num_hidden_layers"), "'num_hidden_layers'", id="a size is missing"),
        pytest.param(
            lambda f: (f / "model.safetensors").unlink(), "no *.safetensors", id="no weights"
        ),
        pytest.param(
            lambda f: (f / "model.safetensors").write_bytes(
                (f / "model.safetensors").read_bytes()[:-40]
            ),
            "a damaged file",
            id="a truncated file",
        ),
        pytest.param(weights(lambda w: w.pop(NORM)), NORM, id="a weight is missing"),
        pytest.param(
            weights(lambda w: w.update({"model.extra": torch.zeros(2)})),
            "model.extra",
            id="a weight too many",
        ),
        pytest.param(weights(lambda w: w.update({NORM: torch.ones(5)})), NORM, id="misshapen"),
        pytest.param(config(num_hidden_layers=2), "model.layers.2", id="another number of layers"),
    ],
)
def test_a_bad_folder_is_one_clear_message(
    tmp_path: Path, spoil: Callable[[Path], object], found: str
) -> None:
    theirs(tied=True).save_pretrained(tmp_path)
    spoil(tmp_path)
    with pytest.raises(UserError) as caught:
        load_model(tmp_path)
    assert found in caught.value.found
    assert str(tmp_path) in caught.value.wanted
    assert caught.value.action


def test_a_missing_folder_is_one_clear_message(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no config\.json"):
        read_shape(tmp_path / "nowhere")
