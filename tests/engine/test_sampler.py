"""Draws follow the distribution whose log-probability they report."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.records import Sampling
from opengyre.engine.draws import uniform
from opengyre.engine.sampler import draw


def how(seed: int = 0, **more: Any) -> Sampling:
    return Sampling(max_new_tokens=9, stop_ids=[], seed=seed, **more)


@given(st.integers(), st.integers(0, 10**9))
def test_numbers_lie_in_the_unit_interval_and_repeat(seed, index):
    assert 0 <= uniform(seed, index) < 1
    assert uniform(seed, index) == uniform(seed, index)


def test_numbers_are_uniform_over_seeds_and_over_indices():
    for numbers in (
        [uniform(seed, 0) for seed in range(4000)],
        [uniform(0, index) for index in range(4000)],
    ):
        bins = torch.tensor(numbers).histc(10, 0, 1)
        assert (bins - 400).abs().max() < 100  # 5 standard deviations


def test_frequencies_follow_the_reported_probabilities():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]])
    for more in ({}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.7}):
        seen = [0.0] * 5
        reported: dict[int, float] = {}
        for seed in range(800):
            ids, logps = draw(logits, [(how(seed, **more), 3)])
            seen[ids[0]] += 1 / 800
            reported[ids[0]] = logps[0]
        total = sum(torch.tensor(list(reported.values())).exp().tolist())
        assert total == pytest.approx(1.0, abs=0.02)
        for token, logp in reported.items():
            assert seen[token] == pytest.approx(float(torch.tensor(logp).exp()), abs=0.08)


def test_a_row_does_not_depend_on_its_neighbours():
    logits = torch.randn(6, 11, generator=torch.Generator().manual_seed(1))
    choices = [
        (how(1), 0),
        (how(2, temperature=0.0), 1),
        (how(3, top_k=3), 2),
        (how(4, top_p=0.5, temperature=0.7), 3),
        (how(5, temperature=2.0), 4),
        (how(6, temperature=0.0, top_k=1), 5),
    ]
    together = draw(logits, choices)
    apart = [draw(logits[i : i + 1], [c]) for i, c in enumerate(choices)]
    assert together[0] == [ids[0] for ids, _ in apart]
    assert together[1] == pytest.approx([logps[0] for _, logps in apart], abs=1e-6)
    plain = logits.log_softmax(-1)
    assert together[0][1] == int(plain[1].argmax())
    for row in (1, 5):
        assert together[1][row] == pytest.approx(float(plain[row].max()), abs=1e-6)
    assert together[0][2] in logits[2].topk(3).indices.tolist()


def test_an_impossible_token_is_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    drawn = {draw(logits, [(how(seed), 0)])[0][0] for seed in range(100)}
    assert drawn == {1, 3}
