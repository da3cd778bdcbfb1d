"""A fresh policy is a whole transformers folder with weights of the size that learns."""

from pathlib import Path

import pytest
import torch

from opengyre.core.errors import UserError
from opengyre.learner.policy import new_policy
from opengyre.model.folder import load_model
from tests.learner.made import tiny_config


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_a_fresh_policy(tmp_path: Path, tied: bool) -> None:
    from transformers import Qwen3ForCausalLM

    model = new_policy(tiny_config(tied=tied), 3, tmp_path)
    theirs = Qwen3ForCausalLM.from_pretrained(tmp_path)
    own = dict(model.named_weights())
    assert {n for n, _ in theirs.named_parameters()} == own.keys()
    assert all(torch.equal(p, own[n]) for n, p in theirs.named_parameters())
    assert theirs.config.initializer_range == 0.25


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    one, same, other = (new_policy(tiny_config(), seed, tmp_path) for seed in (1, 1, 2))
    embedding = "model.embed_tokens.weight"
    assert torch.equal(dict(one.named_weights())[embedding], dict(same.named_weights())[embedding])
    assert not torch.equal(
        dict(one.named_weights())[embedding], dict(other.named_weights())[embedding]
    )
    assert float(dict(one.named_weights())[embedding].std()) == pytest.approx(0.25, rel=0.2)
    load_model(tmp_path)


def test_a_missing_size_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="hidden_size"):
        new_policy({k: v for k, v in tiny_config().items() if k != "hidden_size"}, 0, tmp_path)
