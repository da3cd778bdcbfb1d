"""Advantages are relative to the scored members, and nobody else has a say."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.reasons import Ending, Untrained, VerdictKind
from opengyre.core.records import Verdict
from opengyre.tree.record import ExecutionTree
from opengyre.tree.select import select
from opengyre.tree.weigh import GroupSamples, advantages, draws_of, has_spread, samples_of_group
from tests.tree.strategies import FEW, Member, groups, make_call

SEED = st.integers(0, 2**32)
REWARDS = st.lists(st.floats(-10, 10), max_size=16)


def weigh(
    members: list[Member], seed: int, j_max: int = 5, longest: int | None = None
) -> GroupSamples:
    rng = random.Random(seed)
    return samples_of_group("g", members, j_max=j_max, normalise=True, rng=rng, longest=longest)


def is_scored(member: Member) -> bool:
    return member[2].kind is VerdictKind.SCORED


@given(REWARDS, st.booleans())
def test_advantages_sum_to_nothing(rewards: list[float], normalise: bool) -> None:
    found = advantages(rewards, normalise=normalise)
    assert len(found) == len(rewards)
    assert math.fsum(found) == pytest.approx(0, abs=1e-5)


@given(REWARDS)
def test_normalised_advantages_have_unit_deviation_or_none(rewards: list[float]) -> None:
    square = sum(a * a for a in advantages(rewards, normalise=True))
    assert square == pytest.approx(len(rewards) if has_spread(rewards) else 0)


@given(REWARDS, st.booleans())
def test_better_rewards_have_no_lower_advantage(rewards: list[float], normalise: bool) -> None:
    pairs = sorted(zip(rewards, advantages(rewards, normalise=normalise), strict=True))
    ordered = [advantage for _, advantage in pairs]
    assert ordered == sorted(ordered)


@given(REWARDS)
def test_without_normalisation_advantages_differ_as_rewards_do(rewards: list[float]) -> None:
    found = advantages(rewards, normalise=False)
    if has_spread(rewards):
        for reward, advantage in zip(rewards, found, strict=True):
            assert advantage - found[0] == pytest.approx(reward - rewards[0], abs=1e-9)


def test_rounding_is_no_spread() -> None:
    assert not has_spread([1e9, 1e9 + 0.1])
    assert has_spread([-1e9, 1e9])
    assert not has_spread([0.1 + 0.2, 0.3])
    assert not has_spread([1.0])
    assert not has_spread([])
    assert has_spread([0.0, 0.01])


@FEW
@given(groups(), SEED, st.integers(0, 5))
def test_every_execution_has_a_balanced_ledger(
    members: list[Member], seed: int, j_max: int
) -> None:
    group = weigh(members, seed, j_max)
    assert list(group.ledger_by_execution) == [execution_id for execution_id, _, _ in members]
    for execution_id, tree, _ in members:
        ledger = group.ledger_by_execution[execution_id]
        ledger.check()
        assert ledger.sampled == sum(len(call.output_ids) for call in tree.calls)


@FEW
@given(groups(), SEED)
def test_an_executions_selection_can_be_drawn_again(members: list[Member], seed: int) -> None:
    draws = draws_of(random.Random(seed))
    trees = {execution_id: tree for execution_id, tree, _ in members}
    for longest in (None, 6):
        for sample in weigh(members, seed, j_max=1, longest=longest).samples:
            again = select(trees[sample.execution_id], 1, draws(sample.execution_id), longest)
            assert again.trajectories == sample.trajectories


@FEW
@given(groups(), SEED)
def test_excluded_executions_change_nothing(members: list[Member], seed: int) -> None:
    with_all, scored_only = weigh(members, seed), weigh(list(filter(is_scored, members)), seed)
    assert with_all.samples == scored_only.samples
    assert with_all.reward_mean == scored_only.reward_mean
    assert with_all.spread == scored_only.spread
    assert with_all.scored == scored_only.scored


@FEW
@given(groups(), SEED)
def test_excluded_executions_are_counted_by_kind(members: list[Member], seed: int) -> None:
    group = weigh(members, seed)
    for execution_id, _, verdict in members:
        ledger = group.ledger_by_execution[execution_id]
        if verdict.kind is not VerdictKind.SCORED or not group.spread:
            scored = verdict.kind is VerdictKind.SCORED
            reason = Untrained.NO_SPREAD if scored else verdict.kind.value
            assert ledger.excluded == ({reason: ledger.sampled} if ledger.sampled else {})


@FEW
@given(groups(), SEED)
def test_groups_without_spread_give_no_sample(members: list[Member], seed: int) -> None:
    group = weigh(members, seed)
    rewards = {verdict.reward for _, _, verdict in members if verdict.reward is not None}
    assert group.spread == (len(rewards) > 1)
    assert group.spread or not group.samples


@FEW
@given(groups(), SEED)
def test_with_spread_every_scored_execution_with_trained_tokens_has_its_sample(
    members: list[Member], seed: int
) -> None:
    group = weigh(members, seed)
    by_id = {sample.execution_id: sample for sample in group.samples}
    rewards = [verdict.reward for _, _, verdict in members if verdict.reward is not None]
    expected = advantages(rewards, normalise=True)
    assert group.scored == len(rewards)
    mean = group.reward_mean
    assert mean == pytest.approx(sum(rewards) / len(rewards)) if rewards else mean is None
    for (execution_id, _, verdict), advantage in zip(
        filter(is_scored, members), expected, strict=True
    ):
        ledger = group.ledger_by_execution[execution_id]
        owned = ledger.trained + ledger.shared
        assert (execution_id in by_id) == (group.spread and owned > 0)
        if sample := by_id.get(execution_id):
            assert (sample.reward, sample.advantage) == (verdict.reward, advantage)
            assert sample.owned_tokens == owned == sum(len(t.owned) for t in sample.trajectories)


@FEW
@given(groups(), SEED)
def test_same_seed_same_samples_in_any_order(members: list[Member], seed: int) -> None:
    forwards, backwards = weigh(members, seed), weigh(members[::-1], seed)
    chosen = {s.execution_id: s.trajectories for s in forwards.samples}
    assert chosen == {s.execution_id: s.trajectories for s in backwards.samples}
    assert forwards == weigh(members, seed)


def member(name: str, reward: float | None, kind: VerdictKind = VerdictKind.SCORED) -> Member:
    tree = ExecutionTree([make_call(f"{name}-c", execution_id=name, suffix=[1], output=[2, 3])])
    return name, tree, Verdict(kind=kind, ending=Ending.FINISHED, reward=reward)


def test_an_advantage_of_nothing_still_counts() -> None:
    group = weigh([member("a", 0.0), member("b", 0.5), member("c", 1.0)], seed=0)
    assert [sample.advantage for sample in group.samples][1] == 0.0
    assert len(group.samples) == 3


def test_a_single_scored_member_has_no_spread() -> None:
    group = weigh([member("a", 1.0), member("b", None, VerdictKind.EVALUATOR_FAILURE)], seed=0)
    assert not group.samples
    assert group.ledger_by_execution["a"].excluded == {"no-spread": 2}
    assert group.ledger_by_execution["b"].excluded == {"evaluator-failure": 2}


@pytest.mark.parametrize("reward", [None, math.nan, math.inf])
def test_a_scored_verdict_without_a_finite_reward_is_a_bug(reward: float | None) -> None:
    with pytest.raises(AssertionError, match="a "):
        weigh([member("a", reward), member("b", 1.0)], seed=0)


def test_selection_is_the_one_that_select_makes() -> None:
    group = weigh([member("a", 0.0), member("b", 1.0)], seed=0)
    expected = select(member("a", 0.0)[1], 5, random.Random(0))
    assert group.samples[0].trajectories == expected.trajectories
    assert group.samples[0].oldest_version == expected.oldest_version
