"""Gradients of a tree equal those of separate sequences; steps change weights or nothing."""

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from opengyre.core.errors import LearnerError
from opengyre.core.records import ExecutionSample
from opengyre.learner.layout import Mode
from opengyre.learner.stats import MicroStats
from opengyre.learner.trainer import Trainer
from opengyre.model.qwen3 import Qwen3, causal_attend
from tests.learner.made import (
    learner,
    micro,
    random_sample,
    relative_error,
    sample,
    tiny_policy,
    trajectory,
)

WIDE = learner(clip_low=0.9, clip_high=9.0)
"""A clip range that random trajectories fall on both sides of."""
ON_FIXTURES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def model(tmp_path: Path) -> Qwen3:
    return tiny_policy(tmp_path / "policy")


def slow_loss(
    model: Qwen3, samples: Sequence[ExecutionSample], low: float, high: float, temperature: float
) -> torch.Tensor:
    """Plain separate causal sequences and the loss written out token by token."""
    total = torch.zeros((), dtype=torch.float64)
    for s in samples:
        owned_in_all = s.owned_tokens or sum(len(t.owned) for t in s.trajectories)
        for t in s.trajectories:
            if not t.owned:
                continue
            ids = torch.tensor(t.token_ids)
            hidden = model.hidden(ids, torch.arange(len(ids)), causal_attend)
            table = torch.log_softmax(model.logits(hidden) / temperature, dim=-1)
            logs = [table[i - 1, t.token_ids[i]] for i in t.owned]
            pairs = zip(logs, t.behaviour_logprobs, strict=True)
            ratio = torch.exp(torch.stack([a - b for a, b in pairs]).mean())
            free = ratio * s.advantage
            held = min(max(ratio, torch.tensor(1 - low)), torch.tensor(1 + high)) * s.advantage
            for _ in t.owned:
                total = total - torch.minimum(free, held) / owned_in_all
    return total


def gradients_of(trainer: Trainer, samples: Sequence[ExecutionSample]) -> list[torch.Tensor]:
    trainer.zero()
    trainer.accumulate(micro(samples))
    return [g.clone() for _, g in trainer.gradients()]


@given(seed=st.integers(0, 10**6), executions=st.integers(1, 3), leaves=st.integers(1, 5))
@ON_FIXTURES
def test_tree_expanded_and_separate_sequences_give_the_same_gradient(
    model: Qwen3, seed: int, executions: int, leaves: int
) -> None:
    draw = random.Random(seed)
    samples = [random_sample(draw, f"e{i}", leaves) for i in range(executions)]
    model.zero_grad()
    loss = slow_loss(model, samples, 0.9, 9.0, 0.8)
    if not loss.requires_grad:
        return  # no token of the draw is owned
    loss.backward()  # type: ignore[no-untyped-call]
    reference = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    modes: list[Mode] = ["tree", "expanded"]
    for mode in modes:
        trainer = Trainer(model, WIDE, 0.8, mode)
        stats = trainer.accumulate(micro(samples))
        assert stats.loss_sum == pytest.approx(float(loss.detach()), rel=1e-6, abs=1e-9)
        for (name, found), wanted in zip(trainer.gradients(), reference, strict=True):
            assert relative_error(found, wanted) < 1e-12, name


def test_the_gradients_agree_in_single_precision_too(tmp_path: Path) -> None:
    draw = random.Random(5)
    model = tiny_policy(tmp_path, dtype=torch.float32)
    samples = [random_sample(draw, f"e{i}", 5) for i in range(4)]
    tree = gradients_of(Trainer(model, WIDE, 1.0), samples)
    expanded = gradients_of(Trainer(model, WIDE, 1.0, "expanded"), samples)
    joined = [torch.cat([g.flatten() for g in side]) for side in (tree, expanded)]
    assert relative_error(*joined) < 1e-6


def test_an_execution_with_more_branches_weighs_the_same(model: Qwen3) -> None:
    draw = random.Random(1)
    ids = [3, 1, 4, 1, 5, 9]
    once = trajectory(ids, [2, 3, 5], draw)
    alone = gradients_of(Trainer(model, WIDE, 1.0), [sample("e", [once], 1.0)])
    thrice = gradients_of(Trainer(model, WIDE, 1.0), [sample("e", [once, once, once], 1.0)])
    for a, b in zip(alone, thrice, strict=True):
        torch.testing.assert_close(a, b)


def test_an_execution_split_over_micro_steps_adds_up_to_the_whole(model: Qwen3) -> None:
    draw = random.Random(2)
    whole = random_sample(draw, "e", 4)
    total = sum(len(t.owned) for t in whole.trajectories)
    trainer = Trainer(model, WIDE, 1.0)
    wanted = gradients_of(trainer, [whole])
    trainer.zero()
    stats = MicroStats()
    for t in whole.trajectories:
        part = replace(whole, trajectories=[t], owned_tokens=total)
        stats += trainer.accumulate(micro([part]))
    assert stats.executions == pytest.approx(1.0)
    assert stats.trained_tokens == total
    for (name, found), reference in zip(trainer.gradients(), wanted, strict=True):
        assert relative_error(found, reference) < 1e-12, name


def test_two_cells_that_add_their_gradients_step_like_one(tmp_path: Path) -> None:
    draw = random.Random(3)
    samples = [random_sample(draw, f"e{i}") for i in range(4)]
    alone, core, satellite = (Trainer(tiny_policy(tmp_path), WIDE, 1.0) for _ in range(3))
    for s in samples:
        alone.accumulate(micro([s]))
    core.accumulate(micro(samples[:2]))
    satellite.accumulate(micro(samples[2:]))
    core.add_gradients(satellite.gradients())
    one, two = alone.step(4, 1e-2), core.step(4, 1e-2)
    assert one.gradient_norm == pytest.approx(two.gradient_norm, rel=1e-6)
    assert satellite.optimiser_state() == {}
    for (name, a), (_, b) in zip(
        alone.model.named_weights(), core.model.named_weights(), strict=True
    ):
        assert relative_error(a, b) < 1e-5, name
    satellite.load_weights(core.model.named_weights())
    for (_, a), (_, b) in zip(
        satellite.model.named_weights(), core.model.named_weights(), strict=True
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_raises_and_changes_nothing(tmp_path: Path, bad: float) -> None:
    trainer = Trainer(tiny_policy(tmp_path), WIDE, 1.0)
    trainer.accumulate(micro([random_sample(random.Random(4))]))
    trainer.step(1, 1e-2)
    trainer.accumulate(micro([random_sample(random.Random(5))]))
    trainer.gradients()[3][1].view(-1)[0] = bad
    before = [t.clone() for _, t in trainer.model.named_weights()]
    state = {k: t.clone() for k, t in trainer.optimiser_state().items()}
    with pytest.raises(LearnerError, match="no step"):
        trainer.step(1, 1e-2)
    for old, (name, new) in zip(before, trainer.model.named_weights(), strict=True):
        assert torch.equal(old, new), name
    assert all(torch.equal(state[k], t) for k, t in trainer.optimiser_state().items())


def test_a_step_lowers_the_loss_and_clears_the_gradients(tmp_path: Path) -> None:
    trainer = Trainer(tiny_policy(tmp_path), learner(clip_low=0.9, clip_high=99.0), 1.0)
    work = micro([random_sample(random.Random(6))])
    first = trainer.accumulate(work)
    done = trainer.step(1, 1e-3)
    assert done.clipped == (done.gradient_norm > 1.0)
    assert not any(g.any() for _, g in trainer.gradients())
    assert trainer.accumulate(work).loss_sum < first.loss_sum


def test_clipping_bounds_the_update_whatever_the_scale(tmp_path: Path) -> None:
    trainer = Trainer(tiny_policy(tmp_path), learner(gradient_clip=1e-3), 1.0)
    for _, g in trainer.gradients():
        g.fill_(100.0)
    assert trainer.step(2, 1e-3).clipped
    first_moment = [t for k, t in trainer.optimiser_state().items() if k.endswith(":exp_avg")]
    norm = torch.linalg.vector_norm(torch.cat([t.flatten() for t in first_moment]))
    assert float(norm) == pytest.approx(1e-3 * 0.1, rel=1e-2)  # AdamW keeps 1 - 0.9 of a gradient


def test_stats_count_tokens_and_ratio_one_for_the_behaviour_policy(model: Qwen3) -> None:
    trainer = Trainer(model, learner(), 1.0)
    ids = [1, 2, 3, 4]
    hidden = model.hidden(torch.tensor(ids), torch.arange(4), causal_attend)
    table = torch.log_softmax(model.logits(hidden), dim=-1)
    recorded = [float(table[i - 1, ids[i]].detach()) for i in (1, 3)]
    exact = replace(trajectory(ids, [1, 3], random.Random(0)), behaviour_logprobs=recorded)
    stats = trainer.accumulate(micro([sample("a", [exact], 1.0), sample("b", [exact], -1.0)]))
    assert (stats.packed_tokens, stats.expanded_tokens, stats.trained_tokens) == (4, 8, 4)
    assert (stats.executions, stats.trajectories, stats.clip_share) == (2.0, 2, 0.0)
    assert stats.mean_ratio == pytest.approx(1.0, abs=1e-6)
    assert stats.mismatch == pytest.approx(0.0, abs=1e-6)
    assert stats.entropy == pytest.approx(-sum(recorded) / 2, rel=1e-5)


def test_nothing_owned_means_no_gradient(model: Qwen3) -> None:
    trainer = Trainer(model, learner(), 1.0)
    stats = trainer.accumulate(micro([sample("e", [trajectory([1, 2], [], random.Random(0))], 1)]))
    assert stats.trained_tokens == 0
    assert not any(g.any() for _, g in trainer.gradients())


@pytest.mark.parametrize(
    ("ids", "owned", "words"),
    [([1, 99], [1], "token ids"), ([1] * 200, [1], "positions"), ([1, 2], [2], "owns")],
)
def test_a_trajectory_that_does_not_fit_is_named(
    model: Qwen3, ids: list[int], owned: list[int], words: str
) -> None:
    work = micro([sample("e", [trajectory(ids, owned, random.Random(0))], 1.0)])
    with pytest.raises(LearnerError, match=words):
        Trainer(model, learner(), 1.0).accumulate(work)


def test_foreign_tensors_are_refused_whole(model: Qwen3) -> None:
    trainer = Trainer(model, learner(), 1.0)
    some = [(n, torch.ones_like(t)) for n, t in model.named_weights()][:-1]
    for take in (trainer.add_gradients, trainer.load_weights):
        with pytest.raises(LearnerError, match="do not fit"):
            take(some)
    assert not any(g.any() for _, g in trainer.gradients())
