"""Target log-probabilities equal the full table's, in one piece or in chunks."""

from pathlib import Path

import torch

from opengyre.learner.logprobs import target_logprobs
from tests.learner.made import VOCAB, tiny_policy


def test_chunks_change_neither_values_nor_gradients(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path)
    source = torch.Generator().manual_seed(0)
    hidden = torch.randn(11, 16, dtype=torch.float64, generator=source).requires_grad_()
    tokens = torch.randint(VOCAB, (11,), generator=source)
    table = torch.log_softmax(model.logits(hidden) / 0.7, dim=-1)
    wanted = table[torch.arange(11), tokens]
    (wanted_gradient,) = torch.autograd.grad(wanted.exp().sum(), hidden)
    for floats in (1, 3 * VOCAB, 10**6):
        found = target_logprobs(model, hidden, tokens, 0.7, floats)
        (gradient,) = torch.autograd.grad(found.exp().sum(), hidden)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(gradient, wanted_gradient)


def test_half_precision_logits_are_normalised_in_single_precision(tmp_path: Path) -> None:
    model = tiny_policy(tmp_path, dtype=torch.bfloat16)
    hidden = torch.ones(2, 16, dtype=torch.bfloat16)
    assert target_logprobs(model, hidden, torch.tensor([1, 2]), 1.0).dtype == torch.float32
