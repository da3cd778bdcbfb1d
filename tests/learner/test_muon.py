"""Our Muon is torch's, in fp32."""

import pytest
import torch

from opengyre.learner.muon import Muon, orthogonalise


@pytest.mark.parametrize("size", [(6, 10), (10, 6), (8, 8)])
def test_singular_values_come_near_one(size: tuple[int, int]) -> None:
    matrix = torch.randn(*size, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrix))
    assert 0.5 < float(values.min()) <= float(values.max()) < 1.3


@pytest.mark.parametrize("size", [(6, 10), (10, 6)])
def test_updates_equal_torchs_up_to_its_bf16(size: tuple[int, int]) -> None:
    source = torch.Generator().manual_seed(1)
    start = torch.randn(*size, generator=source)
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimisers = [Muon([ours], lr=0.1), torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0)]
    for _ in range(3):
        gradient = torch.randn(*size, generator=source)
        for p, optimiser in zip((ours, theirs), optimisers, strict=True):
            p.grad = gradient.clone()
            optimiser.step()
    moved = torch.linalg.vector_norm(theirs.detach() - start)
    assert float(torch.linalg.vector_norm((ours - theirs).detach()) / moved) < 0.02


def test_a_zero_gradient_moves_nothing() -> None:
    p = torch.nn.Parameter(torch.ones(2, 3))
    p.grad = torch.zeros(2, 3)
    Muon([p], lr=0.1).step()
    assert torch.equal(p.detach(), torch.ones(2, 3))
