"""The tree gives back exactly what was recorded, and refuses what does not fit."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from opengyre.core.reasons import Role
from opengyre.core.records import Call, VersionSpan
from opengyre.tree.record import BrokenTreeError, ExecutionTree, full_length
from opengyre.tree.roles import trains
from tests.tree.strategies import Grown, executions, make_call


@given(executions())
def test_contexts_come_back_as_they_were(grown: Grown) -> None:
    for call_id, (prompt, output) in grown.truth.items():
        assert grown.tree.prompt_ids(call_id) == prompt
        assert grown.tree.full_ids(call_id) == prompt + output


@given(executions())
def test_every_built_tree_passes_its_check(grown: Grown) -> None:
    grown.tree.check()
    again = ExecutionTree(grown.tree.calls)
    assert again.calls == grown.tree.calls


@given(executions())
def test_a_path_tiles_the_context(grown: Grown) -> None:
    for call in grown.tree.calls:
        path = grown.tree.path(call.call_id)
        bounds = [0, *(stretch.end for stretch in path)]
        assert [stretch.start for stretch in path] == bounds[:-1]
        assert bounds[-1] == full_length(call)


@given(executions())
def test_a_leaf_is_extended_through_its_whole_output_by_no_other(grown: Grown) -> None:
    tree = grown.tree
    tips = [call for call in tree.calls if trains(call.role) and call.output_ids]
    covered = {
        stretch.call.call_id
        for tip in tips
        for stretch in tree.path(tip.call_id)
        if stretch.call is not tip and stretch.end == full_length(stretch.call)
    }
    assert [leaf.call_id for leaf in tree.leaves()] == [
        tip.call_id for tip in tips if tip.call_id not in covered
    ]


def test_equal_tokens_of_two_calls_are_two_branches() -> None:
    first = make_call("a", suffix=[1], output=[2, 3])
    tree = ExecutionTree([first, make_call("b", index=1, suffix=[1], output=[2, 3])])
    assert [leaf.call_id for leaf in tree.leaves()] == ["a", "b"]


def test_a_partly_reused_call_is_still_a_leaf() -> None:
    tree = ExecutionTree([make_call("a", suffix=[1], output=[2, 3])])
    tree.add(make_call("b", index=1, parent_id="a", reused=2, suffix=[5], output=[6]))
    assert [leaf.call_id for leaf in tree.leaves()] == ["a", "b"]


def test_an_auxiliary_call_hides_no_leaf() -> None:
    tree = ExecutionTree([make_call("a", suffix=[1], output=[2])])
    title = make_call("t", index=1, parent_id="a", reused=2, suffix=[], output=[3])
    tree.add(replace(title, role=Role.AUXILIARY))
    assert [leaf.call_id for leaf in tree.leaves()] == ["a"]
    tree.add(make_call("b", index=2, parent_id="t", reused=3, suffix=[4], output=[5]))
    assert [leaf.call_id for leaf in tree.leaves()] == ["b"]


def test_histories_of_thousands_of_calls_are_walked() -> None:
    tree = ExecutionTree([make_call("c0", suffix=[0], output=[1])])
    for i in range(1, 3000):
        tree.add(
            make_call(f"c{i}", index=i, parent_id=f"c{i - 1}", reused=2 * i, suffix=[0], output=[1])
        )
    tree.check()
    assert tree.full_ids("c2999") == [0, 1] * 3000


ROOT = make_call("root", suffix=[1], output=[2])
NEXT = make_call("next", index=1, parent_id="root", reused=2, suffix=[3], output=[4, 5])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (replace(NEXT, parent_id="gone"), "extends gone"),
        (replace(NEXT, reused=3), "reuses 3 of its parent's 2"),
        (replace(NEXT, reused=-1), "reuses -1"),
        (replace(NEXT, parent_id=None), "of no parent"),
        (replace(NEXT, call_id="root"), "recorded before"),
        (replace(NEXT, index=0), "recorded before"),
        (replace(NEXT, index=-1), "not after its parent"),
        (replace(NEXT, execution_id="other"), "does not belong to e"),
        (replace(NEXT, output_logprobs=[-1.0]), "1 log-probabilities for 2"),
        (replace(NEXT, output_logprobs=[-1.0, float("nan")]), "not finite"),
        (replace(NEXT, versions=[VersionSpan(0, 0, 1)]), "versions for 1 of 2"),
        (replace(NEXT, versions=[VersionSpan(0, 0, 3)]), "versions for 3 of 2"),
        (replace(NEXT, versions=[VersionSpan(0, 1, 2)]), "after token 0"),
        (replace(NEXT, reused=0, suffix_ids=[]), "empty context"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(broken: Call, says: str) -> None:
    tree = ExecutionTree([ROOT])
    with pytest.raises(BrokenTreeError, match=says):
        tree.add(broken)
    assert tree.calls == [ROOT]
    tree.add(NEXT)
    tree.check()


def test_an_unknown_call_is_named() -> None:
    with pytest.raises(BrokenTreeError, match="wanted call nowhere"):
        ExecutionTree().prompt_ids("nowhere")
