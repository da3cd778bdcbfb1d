"""Supervised warm start: imitate recorded traces, before reinforcement.

Examples of a batch are laid out as one tree, so their common prompt is computed once; a node's
weight is the sum over the examples that hold it, so the gradient is that of separate sequences.
Hidden matrices are trained by Muon (Jordan et al. 2024, momentum orthogonalised by Newton-Schulz
iterations), all else by AdamW; both rates fall linearly to 0.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opengyre.learner.logprobs import target_logprobs
from opengyre.learner.muon import Muon
from opengyre.learner.trainer import forward
from opengyre.model.qwen3 import Qwen3
from opengyre.tree.pack import PackedTree, pack_sequences

Example = tuple[Sequence[int], Sequence[bool]]
"""Token ids, and for each whether the policy is to say it (an action) or only to read it."""


@dataclass(frozen=True, kw_only=True)
class ImitationSettings:
    """How long and how fast. The defaults are those of the bundled policy."""

    epochs: int = 3
    batch: int = 16
    """Examples a step; twice as many, at half the steps, left a policy that could not be reinforced."""
    matrix_lr: float = 1.5e-2
    """Of Muon."""
    adam_lr: float = 3e-3
    """Of AdamW."""
    context_weight: float = 0.5
    """Loss weight of context tokens; an action's is 1."""
    seed: int = 0
    """Of the order of examples."""


@dataclass(frozen=True)
class ImitationProgress:
    """After each optimiser step."""

    step: int
    """From 1."""
    steps: int
    loss: float
    """Weighted mean of -log p over the step's batch, before the step."""


def imitate(
    model: Qwen3,
    examples: Sequence[Example],
    settings: ImitationSettings,
    progress: Callable[[ImitationProgress], None] = lambda _: None,
) -> None:
    """Train the model in place on the examples."""
    draw = random.Random(settings.seed)
    batches = [
        batch
        for _ in range(settings.epochs)
        for batch in shuffled_batches(len(examples), settings.batch, draw)
    ]
    optimisers = _optimisers(model, settings)
    for done, batch in enumerate(batches):
        loss = imitation_loss(model, [examples[i] for i in batch], settings.context_weight)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimiser, rate in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 - done / len(batches))
            optimiser.step()
        model.zero_grad(set_to_none=True)
        progress(ImitationProgress(done + 1, len(batches), float(loss.detach())))


def imitation_loss(model: Qwen3, examples: Sequence[Example], context_weight: float) -> Tensor:
    """Mean of -log p over all tokens but the first of each example, actions weighing 1."""
    nodes = pack_sequences([ids for ids, _ in examples])
    weights = _node_weights(nodes, [actions for _, actions in examples], context_weight)
    device = model.head_weight().device
    targets = [node for node, parent in enumerate(nodes.parents) if parent >= 0]
    above = torch.tensor([nodes.parents[node] for node in targets], device=device)
    tokens = torch.tensor([nodes.token_ids[node] for node in targets], device=device)
    weight = torch.tensor([weights[node] for node in targets], device=device)
    logprobs = target_logprobs(model, forward(model, nodes).index_select(0, above), tokens, 1.0)
    return -(logprobs * weight).sum() / weight.sum()


def shuffled_batches(count: int, size: int, draw: random.Random) -> list[list[int]]:
    """Every index once, in random batches.

    Never sorted by length: a batch counts as much as any other, so a batch of short examples would
    weigh each of them more, and the policy would learn to stop early.
    """
    order = list(range(count))
    draw.shuffle(order)
    return [order[start : start + size] for start in range(0, count, size)]


def _node_weights(
    nodes: PackedTree, actions: Sequence[Sequence[bool]], context_weight: float
) -> list[float]:
    weights = [0.0] * len(nodes.token_ids)
    for path, flags in zip(nodes.paths, actions, strict=True):
        for node, acts in zip(path, flags, strict=True):
            weights[node] += 1.0 if acts else context_weight
    return weights


def _optimisers(
    model: Qwen3, settings: ImitationSettings
) -> list[tuple[torch.optim.Optimizer, float]]:
    matrices = [p for p in model.model.layers.parameters() if p.dim() == 2]
    held = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in held]
    return [
        (Muon(matrices, lr=settings.matrix_lr), settings.matrix_lr),
        (torch.optim.AdamW(rest, lr=settings.adam_lr, weight_decay=0.0), settings.adam_lr),
    ]
