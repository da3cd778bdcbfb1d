"""The same executions with more and fewer trajectories: time and gradient of each choice.

Invariant: all choices are computed with the same weights, on-policy: a token's behaviour
log-probability is the one that these weights give it. Every ratio is then 1 and nothing is clipped, so
a gradient differs from another only by the tokens that were chosen.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opengyre.config.run import LearnerSection
from opengyre.core.records import MicroStep
from opengyre.learner.stats import MicroStats
from opengyre.learner.trainer import Trainer
from opengyre.model.qwen3 import Qwen3


@dataclass(frozen=True)
class Measured:
    """One choice."""

    seconds: float
    """Forward and backward of all micro-steps, the fastest repeat; packing and planning included."""
    gradient_norm: float
    """Of the sum over executions."""
    cosine: float
    """Between its gradient and the reference's; nan where one of them is zero."""
    stats: MicroStats


def ablate(
    model: Qwen3,
    choices: Mapping[str, Sequence[MicroStep]],
    reference: str,
    now: Callable[[], float],
    repeats: int,
) -> dict[str, Measured]:
    """Compute every choice, in turns, after one untimed pass of each. now: seconds of any clock."""
    trainer = Trainer(model, LearnerSection(), temperature=1.0)
    ready = {
        name: [trainer.on_policy(micro) for micro in micros] for name, micros in choices.items()
    }
    found = {name: _gradient(trainer, micros) for name, micros in ready.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(repeats):
        for name, micros in ready.items():
            start = now()
            _run(trainer, micros)
            seconds[name].append(now() - start)
    trainer.zero()
    towards = found[reference][0]
    return {
        name: Measured(
            seconds=min(seconds[name]),
            gradient_norm=float(torch.linalg.vector_norm(gradient)),
            cosine=_cosine(gradient, towards),
            stats=stats,
        )
        for name, (gradient, stats) in found.items()
    }


def _run(trainer: Trainer, micros: Sequence[MicroStep]) -> MicroStats:
    trainer.zero()
    stats = MicroStats()
    for micro in micros:
        stats += trainer.accumulate(micro)
    return stats


def _gradient(trainer: Trainer, micros: Sequence[MicroStep]) -> tuple[Tensor, MicroStats]:
    stats = _run(trainer, micros)
    return torch.cat([grad.double().flatten() for _, grad in trainer.gradients()]), stats


def _cosine(one: Tensor, other: Tensor) -> float:
    norms = float(torch.linalg.vector_norm(one) * torch.linalg.vector_norm(other))
    return min(1.0, max(-1.0, float(one @ other) / norms)) if norms else math.nan
