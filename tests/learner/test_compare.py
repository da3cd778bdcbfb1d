"""The comparison runs both modes on the same work and reports ratios of one run."""

import random
from pathlib import Path

import pytest
import torch

from opengyre.core.fakes import FakeClock
from opengyre.learner.compare import compare
from tests.learner.made import learner, micro, sample, tiny_policy, trajectory


def test_equal_gradients_fewer_tokens_and_the_clock_passed_in(tmp_path: Path) -> None:
    clock = FakeClock()

    def now() -> float:
        clock.advance(1.0)
        return clock.now()

    draw = random.Random(0)
    prompt = [draw.randrange(13) for _ in range(20)]
    trajectories = [trajectory([*prompt, i, 1], [20, 21], draw) for i in range(5)]
    work = micro([sample(str(i), [t], 1.0) for i, t in enumerate(trajectories)])
    model = tiny_policy(tmp_path)
    before = [t.clone() for _, t in model.named_weights()]
    found = compare(model, [work, work], learner(clip_high=9.0), now, repeats=2)
    assert found.token_ratio == pytest.approx(30 / 110)
    assert found.relative_gradient_error < 1e-12
    assert found.max_relative_gradient_error < 1e-12
    assert found.worst_weight_gradient_error < 1e-12
    assert (found.tree_seconds, found.expanded_seconds, found.time_ratio) == (1.0, 1.0, 1.0)
    pairs = zip(before, model.named_weights(), strict=True)
    assert all(torch.equal(a, b) for a, (_, b) in pairs)
