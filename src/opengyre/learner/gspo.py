"""Adapted GSPO: one importance ratio a trajectory, one vote an execution.

Group Sequence Policy Optimization (arXiv 2507.18071, eq. 5-7), per trajectory instead of per answer:
r = exp(mean over the trajectory's owned tokens of (log p - log p_behaviour)); objective
min(r A, clip(r, 1 - low, 1 + high) A). An execution's objective is the mean over its owned tokens,
so each trajectory weighs owned / owned of the execution and extra branches add no weight. The loss
is the SUM over executions: whoever steps divides by their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from opengyre.core.records import ExecutionSample


@dataclass(frozen=True)
class GspoBatch:
    """J trajectories with K owned tokens in all, trajectory by trajectory."""

    rows: Tensor
    """[K] int64: the trajectory of each owned token."""
    behaviour: Tensor
    """[K] log-probabilities recorded at sampling."""
    counts: Tensor
    """[J] owned tokens of each trajectory, at least 1 where it has a row."""
    advantages: Tensor
    """[J]."""
    weights: Tensor
    """[J] share of its execution's owned tokens."""


@dataclass(frozen=True)
class GspoLoss:
    """loss carries the gradient; the sums are over owned tokens and carry none."""

    loss: Tensor
    clipped_tokens: int
    ratio_sum: float
    mismatch_sum: float
    """Of |log p - log p_behaviour|."""
    surprise_sum: float
    """Of -log p: its mean over sampled tokens estimates the entropy."""


def gspo_batch(
    samples: Sequence[ExecutionSample], dtype: torch.dtype, device: torch.device
) -> GspoBatch:
    """Lay out the owned tokens of all trajectories, in the order of the samples."""
    pairs = [(sample, t) for sample in samples for t in sample.trajectories]
    counts = torch.tensor([len(t.owned) for _, t in pairs], dtype=torch.int64)
    behaviour = [x for _, t in pairs for x in t.behaviour_logprobs]
    totals = torch.tensor([float(execution_tokens(s)) for s, _ in pairs], dtype=dtype)
    return GspoBatch(
        rows=torch.repeat_interleave(torch.arange(len(pairs)), counts).to(device),
        behaviour=torch.tensor(behaviour, dtype=dtype, device=device),
        counts=counts.to(device),
        advantages=torch.tensor([s.advantage for s, _ in pairs], dtype=dtype, device=device),
        weights=(counts / totals.clamp(min=1)).to(device),
    )


def execution_tokens(sample: ExecutionSample) -> int:
    """Owned tokens of the whole execution, whichever micro-steps hold its trajectories."""
    return sample.owned_tokens or sum(len(t.owned) for t in sample.trajectories)


def gspo(logprobs: Tensor, batch: GspoBatch, low: float, high: float) -> GspoLoss:
    """logprobs [K] under the weights being trained, in the batch's order."""
    difference = logprobs - batch.behaviour
    sums = torch.zeros_like(batch.weights).index_add(0, batch.rows, difference)
    ratio = (sums / batch.counts.clamp(min=1)).exp()
    free = ratio * batch.advantages
    clipped = ratio.clamp(1 - low, 1 + high) * batch.advantages
    loss = -(torch.minimum(free, clipped) * batch.weights).sum()
    with torch.no_grad():
        return GspoLoss(
            loss=loss,
            clipped_tokens=int(batch.counts[clipped < free].sum()),
            ratio_sum=float((ratio * batch.counts).sum()),
            mismatch_sum=float(difference.abs().sum()),
            surprise_sum=float(-logprobs.sum()),
        )
