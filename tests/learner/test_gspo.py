"""The loss equals the formula written out, and never favours an execution for its branches."""

import math
import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.core.records import ExecutionSample
from opengyre.learner.gspo import gspo, gspo_batch
from tests.learner.made import sample, trajectory

LOW, HIGH = 0.2, 0.3
CPU = torch.device("cpu")


def formula(samples: Sequence[ExecutionSample], logprobs: Sequence[float]) -> tuple[float, int]:
    """Loss and clipped tokens in plain Python."""
    left, loss, clipped = list(logprobs), 0.0, 0
    for s in samples:
        total = sum(len(t.owned) for t in s.trajectories)
        for t in s.trajectories:
            own, left = left[: len(t.owned)], left[len(t.owned) :]
            if not own:
                continue
            pairs = zip(own, t.behaviour_logprobs, strict=True)
            ratio = math.exp(sum(a - b for a, b in pairs) / len(own))
            free = ratio * s.advantage
            held = min(max(ratio, 1 - LOW), 1 + HIGH) * s.advantage
            loss -= min(free, held) * len(own) / total
            clipped += len(own) if held < free else 0
    return loss, clipped


@given(seed=st.integers(0, 10**6), executions=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_loss_and_clip_share_equal_the_formula(seed: int, executions: int) -> None:
    draw = random.Random(seed)
    samples = [
        sample(
            str(i),
            [
                trajectory([0] * 8, draw.sample(range(1, 8), draw.randint(0, 5)), draw)
                for _ in range(draw.randint(1, 3))
            ],
            draw.gauss(0, 1),
        )
        for i in range(executions)
    ]
    count = sum(len(t.owned) for s in samples for t in s.trajectories)
    logprobs = [-3.0 + 0.5 * draw.gauss(0, 1) for _ in range(count)]
    batch = gspo_batch(samples, torch.float64, CPU)
    found = gspo(torch.tensor(logprobs, dtype=torch.float64), batch, LOW, HIGH)
    loss, clipped = formula(samples, logprobs)
    assert float(found.loss) == pytest.approx(loss, abs=1e-12)
    assert found.clipped_tokens == clipped


@pytest.mark.parametrize(
    ("advantage", "shift", "moves"),
    [(1.0, 1.0, False), (1.0, -1.0, True), (-1.0, 1.0, True), (-1.0, -1.0, False)],
)
def test_only_a_ratio_past_the_clip_in_the_wanted_direction_gives_no_gradient(
    advantage: float, shift: float, moves: bool
) -> None:
    one = sample("e", [trajectory([0] * 4, [1, 2, 3], random.Random(0))], advantage)
    batch = gspo_batch([one], torch.float64, CPU)
    logprobs = (batch.behaviour + shift).requires_grad_()
    result = gspo(logprobs, batch, LOW, HIGH)
    result.loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert bool(logprobs.grad.abs().sum() > 0) == moves
    assert result.clipped_tokens == (0 if moves else 3)


def test_at_ratio_one_the_gradient_is_the_policy_gradient() -> None:
    one = sample("e", [trajectory([0] * 5, [1, 2, 3, 4], random.Random(0))], 2.0)
    batch = gspo_batch([one], torch.float64, CPU)
    logprobs = batch.behaviour.clone().requires_grad_()
    gspo(logprobs, batch, 3e-4, 4e-4).loss.backward()  # type: ignore[no-untyped-call]
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-2.0 / 4] * 4)
