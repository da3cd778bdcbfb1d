"""Selection owns each token once, in class order, and loses none from the books."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.reasons import Role
from opengyre.tree.ledger import Ledger, UnbalancedLedgerError
from opengyre.tree.record import ExecutionTree, prompt_length
from opengyre.tree.roles import PRIORITY, trains
from opengyre.tree.select import Selection, select
from tests.tree.strategies import Grown, executions, make_call

J_MAX = st.none() | st.integers(0, 6)
SEED = st.integers(0, 2**32)
LONGEST = st.none() | st.integers(0, 24)


def owned_tokens(tree: ExecutionTree, selection: Selection) -> list[tuple[str, int]]:
    """(call, output index) of every owned token of every trajectory."""
    found = []
    for chosen in selection.trajectories:
        path = tree.path(chosen.leaf_call_id)
        for position in chosen.owned:
            stretch = next(s for s in path if s.start <= position < s.end)
            found.append((stretch.call.call_id, position - prompt_length(stretch.call)))
    return found


def sampled_tokens(tree: ExecutionTree) -> set[tuple[str, int]]:
    """(call, output index) of every sampled token of a trainable role."""
    return {(c.call_id, i) for c in tree.calls if trains(c.role) for i in range(len(c.output_ids))}


@given(executions(), J_MAX, SEED, LONGEST)
def test_the_ledger_balances_for_the_whole_and_for_each_role(
    grown: Grown, j_max: int | None, seed: int, longest: int | None
) -> None:
    ledger = select(grown.tree, j_max, random.Random(seed), longest).ledger
    ledger.check()
    assert ledger.sampled == sum(len(call.output_ids) for call in grown.tree.calls)
    for role in Role:
        sampled = sum(len(c.output_ids) for c in grown.tree.calls if c.role is role)
        assert ledger.by_role.get(role, Ledger()).sampled == sampled


@given(executions(), J_MAX, SEED, st.integers(0, 24))
def test_what_lies_beyond_the_longest_trajectory_is_truncated_and_nothing_else(
    grown: Grown, j_max: int | None, seed: int, longest: int
) -> None:
    selection = select(grown.tree, j_max, random.Random(seed), longest)
    beyond = {
        (call_id, i)
        for call_id, i in sampled_tokens(grown.tree)
        if prompt_length(grown.tree.call(call_id)) + i >= longest
    }
    assert sum(selection.ledger.truncated.values()) == len(beyond)
    assert Counter(call_id for call_id, _ in beyond) == Counter(selection.truncated_by_call)
    assert not beyond & set(owned_tokens(grown.tree, selection))
    assert all(len(t.token_ids) <= longest for t in selection.trajectories)
    for chosen in selection.trajectories:
        prompt, output = grown.truth[chosen.leaf_call_id]
        assert chosen.token_ids == (prompt + output)[: chosen.owned[-1] + 1]
    if j_max is None:
        assert selection.ledger.cut == 0


@given(executions(), SEED, LONGEST)
def test_fewer_trajectories_are_the_first_of_more(
    grown: Grown, seed: int, longest: int | None
) -> None:
    everything = select(grown.tree, None, random.Random(seed), longest).trajectories
    for j_max in range(len(everything) + 2):
        fewer = select(grown.tree, j_max, random.Random(seed), longest).trajectories
        assert fewer == everything[:j_max]


@given(executions(), SEED)
def test_books_that_differ_from_the_trajectories_are_seen(grown: Grown, seed: int) -> None:
    selection = select(grown.tree, None, random.Random(seed))
    if selection.trajectories:
        selection.trajectories.pop()
        with pytest.raises(UnbalancedLedgerError):
            selection.check()


@given(executions(), J_MAX, SEED)
def test_every_owned_token_is_sampled_trainable_and_owned_once(
    grown: Grown, j_max: int | None, seed: int
) -> None:
    selection = select(grown.tree, j_max, random.Random(seed))
    owned = owned_tokens(grown.tree, selection)
    assert len(owned) == len(set(owned))
    assert set(owned) <= sampled_tokens(grown.tree)
    assert Counter(call_id for call_id, _ in owned) == Counter(selection.owned_by_call)
    assert len(owned) == selection.ledger.trained + selection.ledger.shared


@given(executions(), J_MAX, SEED)
def test_shared_counts_tokens_on_several_selected_paths(
    grown: Grown, j_max: int | None, seed: int
) -> None:
    selection = select(grown.tree, j_max, random.Random(seed))
    seen = Counter(
        (stretch.call.call_id, i)
        for chosen in selection.trajectories
        for stretch in grown.tree.path(chosen.leaf_call_id)
        if trains(stretch.call.role)
        for i in range(stretch.sampled)
    )
    assert selection.ledger.shared == sum(count > 1 for count in seen.values())
    assert selection.ledger.trained == sum(count == 1 for count in seen.values())


@given(executions(), J_MAX, SEED)
def test_at_most_j_max_and_each_trajectory_trains_something(
    grown: Grown, j_max: int | None, seed: int
) -> None:
    trajectories = select(grown.tree, j_max, random.Random(seed)).trajectories
    assert j_max is None or len(trajectories) <= j_max
    assert len({t.leaf_call_id for t in trajectories}) == len(trajectories)
    for chosen in trajectories:
        assert chosen.owned
        assert chosen.owned == sorted(set(chosen.owned))
        assert 0 < chosen.owned[0] <= chosen.owned[-1] < len(chosen.token_ids)


@given(executions(), J_MAX, SEED)
def test_tokens_and_log_probabilities_are_the_recorded_ones(
    grown: Grown, j_max: int | None, seed: int
) -> None:
    tree = grown.tree
    selection = select(tree, j_max, random.Random(seed))
    recorded = [
        (tree.call(call_id).output_ids[i], tree.call(call_id).output_logprobs[i])
        for call_id, i in owned_tokens(tree, selection)
    ]
    assert recorded == [
        (chosen.token_ids[position], logprob)
        for chosen in selection.trajectories
        for position, logprob in zip(chosen.owned, chosen.behaviour_logprobs, strict=True)
    ]
    for chosen in selection.trajectories:
        prompt, output = grown.truth[chosen.leaf_call_id]
        assert chosen.token_ids == prompt + output


@given(executions(), J_MAX, SEED)
def test_a_class_is_served_only_when_higher_ones_have_nothing_left(
    grown: Grown, j_max: int | None, seed: int
) -> None:
    selection = select(grown.tree, j_max, random.Random(seed))
    order = [PRIORITY.index(chosen.role) for chosen in selection.trajectories]
    assert order == sorted(order)
    owned = set(owned_tokens(grown.tree, selection))
    if selection.trajectories:
        for leaf in grown.tree.leaves():
            path = grown.tree.path(leaf.call_id)
            tokens = {
                (s.call.call_id, i) for s in path if trains(s.call.role) for i in range(s.sampled)
            }
            assert PRIORITY.index(leaf.role) >= order[-1] or tokens <= owned


@given(executions(), SEED)
def test_without_a_limit_nothing_is_cut(grown: Grown, seed: int) -> None:
    selection = select(grown.tree, None, random.Random(seed))
    assert selection.ledger.cut == 0
    assert set(owned_tokens(grown.tree, selection)) == sampled_tokens(grown.tree)


@given(executions(), J_MAX, SEED)
def test_same_seed_same_selection(grown: Grown, j_max: int | None, seed: int) -> None:
    once = select(grown.tree, j_max, random.Random(seed))
    assert once == select(grown.tree, j_max, random.Random(seed))


@given(executions(), J_MAX, SEED)
def test_the_oldest_version_is_that_of_an_owned_token(
    grown: Grown, j_max: int | None, seed: int
) -> None:
    selection = select(grown.tree, j_max, random.Random(seed))
    versions = [
        span.version
        for call_id, i in owned_tokens(grown.tree, selection)
        for span in grown.tree.call(call_id).versions
        if span.start <= i < span.end
    ]
    assert selection.oldest_version == min(versions, default=None)


def test_leaves_are_drawn_in_proportion_to_their_untrained_tokens() -> None:
    tree = ExecutionTree(
        [
            make_call("long", index=0, suffix=[1], output=[0] * 9),
            make_call("short", index=1, suffix=[2], output=[0] * 3),
        ]
    )
    rng = random.Random(1)
    first = Counter(select(tree, 1, rng).trajectories[0].leaf_call_id for _ in range(4000))
    # Four standard deviations of the binomial distribution around 3 in 4.
    assert abs(first["long"] - 3000) < 110


def test_excluded_roles_are_counted_by_role_also_inside_a_trained_path() -> None:
    tree = ExecutionTree([make_call("a", suffix=[1], output=[2, 2], role=Role.AUXILIARY)])
    tree.add(
        make_call("u", index=1, parent_id="a", reused=3, suffix=[], output=[3], role=Role.UNKNOWN)
    )
    tree.add(make_call("m", index=2, parent_id="u", reused=4, suffix=[4], output=[5, 6, 7]))
    selection = select(tree, 5, random.Random(0))
    assert selection.ledger.excluded == {"auxiliary": 2, "unknown": 1}
    assert selection.trajectories[0].owned == [5, 6, 7]
