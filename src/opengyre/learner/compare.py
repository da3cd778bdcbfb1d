"""Tree-packed against path-expanded training on the same micro-steps: same gradients, less time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opengyre.config.run import LearnerSection
from opengyre.core.records import MicroStep
from opengyre.learner.layout import Mode
from opengyre.learner.stats import MicroStats
from opengyre.learner.trainer import Trainer
from opengyre.model.qwen3 import Qwen3


@dataclass(frozen=True)
class Comparison:
    """Ratios are tree / expanded: below 1, the tree wins."""

    time_ratio: float
    """Of the fastest repeats; packing and planning included."""
    token_ratio: float
    """Tokens computed: the limit that time_ratio tends to while attention is cheap."""
    relative_gradient_error: float
    """|tree - expanded| / |expanded| of the whole gradient, in 2-norms."""
    max_relative_gradient_error: float
    """Largest difference of an entry over the largest entry of the whole gradient."""
    worst_weight_gradient_error: float
    """relative_gradient_error of each weight by itself, the largest: rounding shows most where the
    terms of a gradient nearly cancel."""
    tree_seconds: float
    expanded_seconds: float
    repeats: int


def compare(
    model: Qwen3,
    micro_steps: Sequence[MicroStep],
    settings: LearnerSection,
    now: Callable[[], float],
    repeats: int = 5,
) -> Comparison:
    """Run all micro-steps in both modes, in turns, after one untimed run of each.

    now: seconds of any clock. The model's gradients are cleared; its weights stay.
    """
    trainer = Trainer(model, settings, temperature=1.0)
    tree, stats = _gradients(trainer, micro_steps, "tree")
    expanded, _ = _gradients(trainer, micro_steps, "expanded")
    seconds: dict[Mode, list[float]] = {"tree": [], "expanded": []}
    for _ in range(repeats):
        for mode, taken in seconds.items():
            start = now()
            _run(trainer, micro_steps, mode)
            taken.append(now() - start)
    trainer.zero()
    fastest = {mode: min(taken) for mode, taken in seconds.items()}
    return Comparison(
        time_ratio=fastest["tree"] / fastest["expanded"],
        token_ratio=stats.packed_tokens / stats.expanded_tokens,
        relative_gradient_error=_relative_error(_joined(tree), _joined(expanded)),
        max_relative_gradient_error=_largest_error(_joined(tree), _joined(expanded)),
        worst_weight_gradient_error=max(map(_relative_error, tree, expanded)),
        tree_seconds=fastest["tree"],
        expanded_seconds=fastest["expanded"],
        repeats=repeats,
    )


def _run(trainer: Trainer, micro_steps: Sequence[MicroStep], mode: Mode) -> MicroStats:
    trainer.mode = mode
    trainer.zero()
    stats = MicroStats()
    for micro in micro_steps:
        stats += trainer.accumulate(micro)
    return stats


def _gradients(
    trainer: Trainer, micro_steps: Sequence[MicroStep], mode: Mode
) -> tuple[list[Tensor], MicroStats]:
    stats = _run(trainer, micro_steps, mode)
    return [grad.double() for _, grad in trainer.gradients()], stats


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def _relative_error(found: Tensor, reference: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(reference))
    error = float(torch.linalg.vector_norm(found - reference))
    return error / norm if norm else error


def _largest_error(found: Tensor, reference: Tensor) -> float:
    largest = float(reference.abs().max())
    error = float((found - reference).abs().max())
    return error / largest if largest else error
