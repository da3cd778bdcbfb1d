"""The described tree has every call once and its sums are the ledger's."""

import random

from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.reasons import ForkReason, Role
from opengyre.tree.record import ExecutionTree
from opengyre.tree.select import select
from opengyre.tree.show import describe
from tests.tree.strategies import Grown, executions, make_call

SEED = st.integers(0, 2**32)


@given(executions(), st.integers(0, 5), SEED, st.none() | st.integers(0, 24))
def test_sums_over_branches_are_the_ledgers(
    grown: Grown, j_max: int, seed: int, longest: int | None
) -> None:
    selection = select(grown.tree, j_max, random.Random(seed), longest)
    lines = describe(grown.tree, selection)
    assert sum(line.calls for line in lines) == len(grown.tree)
    assert sum(line.sampled_tokens for line in lines) == selection.ledger.sampled
    assert sum(line.cut_tokens for line in lines) == selection.ledger.cut
    truncated = sum(selection.ledger.truncated.values())
    assert sum(line.truncated_tokens for line in lines) == truncated
    owned = selection.ledger.owned
    assert sum(line.owned_tokens for line in lines) == owned
    assert sum(line.selected for line in lines) <= len(selection.trajectories)


@given(executions())
def test_depths_form_a_tree_and_without_a_selection_nothing_is_marked(grown: Grown) -> None:
    lines = describe(grown.tree)
    depths = [line.depth for line in lines]
    assert all(below <= above + 1 for above, below in zip([-1, *depths], depths, strict=False))
    assert not any(line.selected or line.owned_tokens or line.cut_tokens for line in lines)
    calls = [line.first_call_id for line in lines]
    roots = [c.call_id for c in grown.tree.calls if c.parent_id is None]
    assert [c for c, depth in zip(calls, depths, strict=True) if depth == 0] == roots


def test_a_compaction_and_a_sub_agent_read_as_branches() -> None:
    tree = ExecutionTree(
        [
            make_call("m0", index=0, suffix=[1, 1], output=[2]),
            make_call("s0", index=1, suffix=[9], output=[9, 9], role=Role.SUB_AGENT),
            make_call("m1", index=2, parent_id="m0", reused=3, suffix=[3], output=[4]),
            make_call(
                "x0",
                index=3,
                parent_id="m1",
                reused=3,
                suffix=[7],
                output=[8],
                role=Role.MAIN_SUMMARY,
            ),
        ]
    )
    lines = describe(tree, select(tree, 1, random.Random(0)))
    assert [(line.depth, line.first_call_id, line.call_id, line.calls) for line in lines] == [
        (0, "m0", "m1", 2),
        (1, "x0", "x0", 1),
        (0, "s0", "s0", 1),
    ]
    assert [line.selected for line in lines] == [True, False, False]
    assert [(line.owned_tokens, line.cut_tokens) for line in lines] == [(2, 0), (0, 1), (0, 2)]
    assert lines[0].context_tokens == 4
    assert lines[0].fork is ForkReason.NEW_CONVERSATION
