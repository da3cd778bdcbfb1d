"""Packing loses no trajectory, computes no shared token twice, and cuts within the budget."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.fakes import CountingIds
from opengyre.core.records import ExecutionSample, MicroStep
from opengyre.tree.pack import micro_steps, pack, pack_sequences
from tests.tree.strategies import SETS, samples, trajectory

BUDGETS = st.integers(1, 40)


def cut(parts: list[ExecutionSample], budget: int) -> list[MicroStep]:
    return micro_steps(parts, budget, step=3, ids=CountingIds())


def distinct_prefixes(sequences: list[list[int]]) -> int:
    return len({tuple(s[: i + 1]) for s in sequences for i in range(len(s))})


def sequences_of(micro: MicroStep) -> list[list[int]]:
    return [t.token_ids for sample in micro.samples for t in sample.trajectories]


@given(SETS)
def test_walking_parents_gives_every_trajectory_back(sequences: list[list[int]]) -> None:
    tree = pack_sequences(sequences)
    tree.check(sequences)
    for path, sequence in zip(tree.paths, sequences, strict=True):
        node, walked = (path[-1] if path else -1), []
        while node >= 0:
            walked.append(tree.token_ids[node])
            node = tree.parents[node]
        assert walked[::-1] == sequence


@given(SETS)
def test_equal_prefixes_are_nodes_once(sequences: list[list[int]]) -> None:
    assert len(pack_sequences(sequences).token_ids) == distinct_prefixes(sequences)


@given(SETS)
def test_paths_are_whole_segments_in_order(sequences: list[list[int]]) -> None:
    tree = pack_sequences(sequences)
    for number, path in enumerate(tree.paths):
        held = [s for s in tree.segments if number in s.trajectories]
        assert path == [node for s in held for node in range(s.start, s.end)]


def test_two_trajectories_share_their_prefix() -> None:
    tree = pack([trajectory("a", [5, 6, 7]), trajectory("b", [5, 6, 8, 9])])
    assert tree.token_ids == [5, 6, 7, 8, 9]
    assert tree.parents == [-1, 0, 1, 1, 3]
    assert tree.positions == [0, 1, 2, 2, 3]
    assert tree.paths == [[0, 1, 2], [0, 1, 3, 4]]


@given(samples(), BUDGETS)
def test_every_trajectory_is_in_exactly_one_micro_step(
    parts: list[ExecutionSample], budget: int
) -> None:
    micros = cut(parts, budget)
    held = [
        (s.execution_id, t.leaf_call_id, tuple(t.owned))
        for micro in micros
        for s in micro.samples
        for t in s.trajectories
    ]
    assert sorted(held) == sorted(
        (s.execution_id, t.leaf_call_id, tuple(t.owned)) for s in parts for t in s.trajectories
    )
    assert len({micro.micro_id for micro in micros}) == len(micros)
    assert {micro.step for micro in micros} <= {3}


@given(samples(), BUDGETS)
def test_an_execution_keeps_its_weight_and_place(parts: list[ExecutionSample], budget: int) -> None:
    whole = {sample.execution_id: sample for sample in parts}
    for micro in cut(parts, budget):
        ids = [sample.execution_id for sample in micro.samples]
        assert ids == sorted(set(ids))
        for share in micro.samples:
            sample = whole[share.execution_id]
            assert share.owned_tokens == sample.owned_tokens
            assert share.advantage == sample.advantage
            order = [sample.trajectories.index(t) for t in share.trajectories]
            assert order == sorted(order)


@given(samples(), BUDGETS)
def test_the_budget_holds_unless_one_trajectory_exceeds_it(
    parts: list[ExecutionSample], budget: int
) -> None:
    for micro in cut(parts, budget):
        assert micro.packed_tokens == distinct_prefixes(sequences_of(micro))
        assert micro.packed_tokens <= micro.expanded_tokens
        assert micro.expanded_tokens == sum(map(len, sequences_of(micro)))
        assert micro.packed_tokens <= budget or len(sequences_of(micro)) == 1


@given(samples(), BUDGETS)
def test_an_execution_that_fits_is_not_parted(parts: list[ExecutionSample], budget: int) -> None:
    micros = cut(parts, budget)
    for sample in parts:
        if distinct_prefixes([t.token_ids for t in sample.trajectories]) <= budget:
            holders = [
                m for m in micros for s in m.samples if s.execution_id == sample.execution_id
            ]
            assert len(holders) == 1


@given(samples())
def test_one_micro_step_holds_all_that_fits(parts: list[ExecutionSample]) -> None:
    everything = [t.token_ids for s in parts for t in s.trajectories]
    budget = max(1, distinct_prefixes(everything))
    assert len(cut(parts, budget)) == (1 if parts else 0)


@given(SETS, st.integers(7, 30))
def test_no_cut_of_neighbours_recomputes_less(sequences: list[list[int]], budget: int) -> None:
    sequences.sort()
    parts = [
        ExecutionSample(
            execution_id=f"e{i}",
            group_id="g",
            advantage=1.0,
            reward=1.0,
            trajectories=[trajectory(f"e{i}", tokens)],
            oldest_version=0,
        )
        for i, tokens in enumerate(sequences)
    ]
    micros = cut(parts, budget)
    found = sum(micro.packed_tokens for micro in micros), len(micros)
    for chosen in itertools.product([False, True], repeat=max(0, len(sequences) - 1)):
        bounds = [0, *(i + 1 for i, here in enumerate(chosen) if here), len(sequences)]
        sizes = [distinct_prefixes(sequences[a:b]) for a, b in itertools.pairwise(bounds)]
        assert max(sizes) > budget or found <= (sum(sizes), len(sizes))


def test_kin_of_a_group_are_neighbours_and_groups_keep_their_order() -> None:
    lines = {"a": [1, 1, 1, 2], "stranger": [5, 5, 5, 5], "b": [1, 1, 1, 3]}
    parts = [
        ExecutionSample(
            execution_id=f"{group}-{name}",
            group_id=group,
            advantage=1.0,
            reward=1.0,
            trajectories=[trajectory(name, tokens)],
            oldest_version=0,
        )
        for group in ("g2", "g1")
        for name, tokens in lines.items()
    ]
    held = [[sample.execution_id for sample in micro.samples] for micro in cut(parts, budget=5)]
    assert held == [["g2-a", "g2-b"], ["g2-stranger"], ["g1-a", "g1-b"], ["g1-stranger"]]


def test_a_missing_total_is_filled_in_when_an_execution_is_parted() -> None:
    parted = ExecutionSample(
        execution_id="e",
        group_id="g",
        advantage=1.0,
        reward=1.0,
        trajectories=[trajectory("a", [1, 2, 3, 4], 2), trajectory("b", [1, 5, 6, 7], 3)],
        oldest_version=0,
    )
    micros = cut([parted], budget=4)
    assert [micro.samples[0].owned_tokens for micro in micros] == [5, 5]
    assert [len(micro.samples[0].trajectories) for micro in micros] == [1, 1]
