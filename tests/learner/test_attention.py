"""Tree attention equals plain causal attention along each path."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.learner import attention
from opengyre.learner.attention import pieces, plan
from opengyre.learner.layout import chains
from opengyre.model.qwen3 import causal_attend
from opengyre.tree.pack import PackedTree, pack_sequences
from tests.learner.made import random_tree

CPU = torch.device("cpu")


def qkv(count: int) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(count)
    sizes = [(count, 4, 8), (count, 2, 8), (count, 2, 8)]
    return [torch.randn(*s, dtype=torch.float64, generator=source).requires_grad_() for s in sizes]


def along_paths(
    nodes: PackedTree, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    out = torch.zeros_like(q)
    for path in nodes.paths:
        out[path] = causal_attend(0, q[path], k[path], v[path])
    return out


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 7), block=st.sampled_from([2, 3, 512]))
@settings(max_examples=60, deadline=None)
def test_every_node_sees_its_ancestors_and_itself(seed: int, leaves: int, block: int) -> None:
    nodes = pack_sequences(random_tree(random.Random(seed), leaves, 12))
    q, k, v = qkv(len(nodes.parents))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "QUERY_BLOCK", block)
        found = plan(nodes.segments, torch.float64, CPU)(0, q, k, v)
    torch.testing.assert_close(found, along_paths(nodes, q, k, v), rtol=1e-10, atol=1e-10)


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_pieces_name_all_ancestors_root_first(seed: int, leaves: int) -> None:
    nodes = pack_sequences(random_tree(random.Random(seed), leaves, 12))
    for piece in pieces(nodes.segments):
        above = []
        node = nodes.parents[piece.start]
        while node >= 0:
            above.append(node)
            node = nodes.parents[node]
        assert piece.above.tolist() == above[::-1]


def test_padding_many_calls_into_one_changes_nothing() -> None:
    nodes = pack_sequences(random_tree(random.Random(3), 12, 40))
    q, k, v = qkv(len(nodes.parents))
    results = []
    for pairs in (0, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attention, "CALL_PAIRS", pairs)
            planned = plan(nodes.segments, torch.float64, CPU)
        results.append((len(planned.calls), planned(0, q, k, v)))
    (many, found), (few, padded) = results
    assert few <= 2 < many
    torch.testing.assert_close(found, padded)


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_chains_give_back_the_sequences_and_share_nothing(seed: int, leaves: int) -> None:
    sequences = random_tree(random.Random(seed), leaves, 12)
    nodes = chains(sequences)
    nodes.check(sequences)
    assert len(nodes.parents) == sum(map(len, sequences))
