"""Imitation lowers the loss; sharing prefixes does not change it."""

import random
from pathlib import Path

import pytest
import torch

from opengyre.learner.imitate import (
    Example,
    ImitationProgress,
    ImitationSettings,
    imitate,
    imitation_loss,
    shuffled_batches,
)
from opengyre.model.qwen3 import causal_attend
from tests.learner.made import VOCAB, tiny_policy


def copying(count: int, draw: random.Random) -> list[Example]:
    """Say again what was read: 0 a b c 0 a b c."""
    words = [[draw.randrange(1, VOCAB) for _ in range(3)] for _ in range(count)]
    return [([0, *w, 0, *w], [False] * 5 + [True] * 3) for w in words]


def test_a_toy_policy_learns_to_copy(tmp_path: Path) -> None:
    seen: list[ImitationProgress] = []
    model = tiny_policy(tmp_path, dtype=torch.float32)
    examples = copying(192, random.Random(0))
    imitate(model, examples, ImitationSettings(epochs=3, batch=8), seen.append)
    assert [p.step for p in seen] == list(range(1, 73))
    assert {p.steps for p in seen} == {72}
    assert sum(p.loss for p in seen[-8:]) < 0.8 * sum(p.loss for p in seen[:8])


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    models = [tiny_policy(tmp_path, dtype=torch.float32) for _ in range(2)]
    for model in models:
        imitate(model, copying(16, random.Random(0)), ImitationSettings(epochs=1, batch=8))
    pairs = zip(models[0].named_weights(), models[1].named_weights(), strict=True)
    assert all(torch.equal(a, b) for (_, a), (_, b) in pairs)


def test_the_loss_is_the_weighted_mean_over_separate_sequences(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path)
    examples = copying(3, random.Random(1))
    total, weights = torch.zeros((), dtype=torch.float64), 0.0
    for ids, actions in examples:
        hidden = model.hidden(torch.tensor(ids), torch.arange(len(ids)), causal_attend)
        table = torch.log_softmax(model.logits(hidden), dim=-1)
        for i in range(1, len(ids)):
            weight = 1.0 if actions[i] else 0.25
            total, weights = total - weight * table[i - 1, ids[i]], weights + weight
    found = imitation_loss(model, examples, 0.25)
    assert float(found.detach()) == pytest.approx(float(total.detach()) / weights, rel=1e-6)


def test_every_example_is_in_one_random_batch() -> None:
    batches = shuffled_batches(70, 4, random.Random(0))
    assert sorted(i for batch in batches for i in batch) == list(range(70))
    assert [len(batch) for batch in batches] == [4] * 17 + [2]
    assert batches != shuffled_batches(70, 4, random.Random(1))
