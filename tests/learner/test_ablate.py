"""Choices of trajectories are compared on-policy, with nothing else between them."""

import math
import random
from pathlib import Path

import pytest

from opengyre.core.fakes import FakeClock
from opengyre.learner.ablate import ablate
from opengyre.learner.trainer import Trainer
from tests.learner.made import learner, micro, random_sample, sample, tiny_policy


def test_as_if_these_weights_had_sampled_it_every_ratio_is_one(tmp_path: Path) -> None:
    draw = random.Random(3)
    trainer = Trainer(tiny_policy(tmp_path), learner(), temperature=1.0)
    made = micro([random_sample(draw, "a"), random_sample(draw, "b")])
    ready = trainer.on_policy(made)
    stats = trainer.accumulate(ready)
    assert stats.mean_ratio == pytest.approx(1.0)
    assert stats.mismatch == pytest.approx(0.0, abs=1e-9)
    assert stats.clipped_tokens == 0
    tokens = [[t.token_ids for t in one.trajectories] for one in ready.samples]
    assert tokens == [[t.token_ids for t in one.trajectories] for one in made.samples]


def test_equal_choices_have_equal_gradients_and_opposite_ones_opposite(tmp_path: Path) -> None:
    one = random_sample(random.Random(5))
    turned = sample("e", one.trajectories, -one.advantage)
    choices = {"same": [micro([one])], "turned": [micro([turned])], "all": [micro([one])]}
    clock = FakeClock()
    found = ablate(tiny_policy(tmp_path), choices, "all", clock.now, repeats=1)
    assert found["same"].cosine == pytest.approx(1.0)
    assert found["turned"].cosine == pytest.approx(-1.0)
    assert found["same"].gradient_norm == found["all"].gradient_norm > 0


def test_a_choice_without_a_gradient_has_no_direction(tmp_path: Path) -> None:
    still = sample("e", random_sample(random.Random(5)).trajectories, 0.0)
    found = ablate(tiny_policy(tmp_path), {"all": [micro([still])]}, "all", FakeClock().now, 1)
    assert math.isnan(found["all"].cosine)
    assert found["all"].gradient_norm == 0.0
