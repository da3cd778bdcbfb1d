"""Muon in fp32: momentum, orthogonalised (Jordan et al. 2024, github.com/KellerJordan/Muon).

torch.optim.Muon iterates in bf16, which a CPU without bf16 units emulates: 14 times slower than this
on matrices of a small policy, more than half of a warm-start step. A test holds the two together.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
STEPS = 5
"""Momentum, quintic coefficients and iterations of the reference: singular values end in about
[0.7, 1.2], which is near enough to 1."""
TINY = 1e-7
"""Keeps a zero gradient from dividing by zero."""


class Muon(torch.optim.Optimizer):
    """For 2-D weights only; lr is the spectral size of an update of a wide or square matrix."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every weight that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(
                        self._direction(p),
                        alpha=-group["lr"] * max(1.0, p.size(0) / p.size(1)) ** 0.5,
                    )

    def _direction(self, p: torch.nn.Parameter) -> Tensor:
        assert p.grad is not None
        state = self.state[p]
        if not state:
            state["momentum"] = torch.zeros_like(p)
        momentum: Tensor = state["momentum"]
        momentum.lerp_(p.grad, 1 - MOMENTUM)
        return orthogonalise(p.grad.lerp(momentum, MOMENTUM))  # Nesterov: looks one step ahead


def orthogonalise(matrix: Tensor) -> Tensor:
    """[m, n] -> about U V^T of its singular value decomposition, by Newton-Schulz iterations."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / torch.linalg.matrix_norm(x).clamp(min=TINY)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
