"""Random executions, groups and token sequences, shared by the tests of this room.

An execution is planned as a list of small steps; a step names an earlier call by a number taken
modulo the calls so far, so that every list is a valid plan and shrinks well. The true context of
each call is kept beside the tree, built without it. Few token values make prefixes meet by chance.
"""

import itertools
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from opengyre.core.reasons import Ending, FinishReason, ForkReason, Role, VerdictKind
from opengyre.core.records import Call, ExecutionSample, Trajectory, Verdict, VersionSpan
from opengyre.tree.record import ExecutionTree

Member = tuple[str, ExecutionTree, Verdict]

TOKENS = st.integers(0, 2)

SHORT = [list(run) for length in range(5) for run in itertools.product(range(2), repeat=length)]
"""Every run of up to four of two tokens: one draw instead of five keeps generation cheap."""

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For properties of whole groups, which are slow to generate."""


@dataclass(frozen=True)
class Plan:
    """One call to be: what it extends, how much of it, and what is new."""

    extends: int | None
    keeps: int | None
    """Tokens of the parent that are reused, modulo what it has; None = all of them."""
    suffix: list[int]
    output: list[int]
    role: Role
    version: int
    finish: FinishReason


PLANS = st.builds(
    Plan,
    extends=st.sampled_from([None, -1, -1, *range(10)]),
    keeps=st.sampled_from([None] * 12 + list(range(24))),
    suffix=st.sampled_from(SHORT),
    output=st.sampled_from(SHORT),
    role=st.sampled_from([Role.MAIN, Role.MAIN, *Role]),
    version=st.integers(0, 3),
    finish=st.sampled_from([FinishReason.STOP, *FinishReason]),
)
"""Mostly whole extensions by the main agent; every other role and every partial reuse occurs."""


@dataclass(frozen=True)
class Grown:
    """A tree, and each call's true prompt and output."""

    tree: ExecutionTree
    truth: dict[str, tuple[list[int], list[int]]]


def grow(execution_id: str, steps: list[Plan], head: list[int]) -> Grown:
    """Carry a plan out; contexts without a parent start with `head`, as a group's prompts do."""
    tree, truth = ExecutionTree(), dict[str, tuple[list[int], list[int]]]()
    for index, plan in enumerate(steps):
        parent = tree.calls[plan.extends % index] if index and plan.extends is not None else None
        prompt, output = truth[parent.call_id] if parent else ([], [])
        above = prompt + output
        reused = len(above) if plan.keeps is None else plan.keeps % (len(above) + 1)
        suffix = plan.suffix if reused else head + plan.suffix
        call = make_call(
            f"{execution_id}-c{index}",
            index=index,
            execution_id=execution_id,
            parent_id=parent.call_id if parent else None,
            reused=reused,
            suffix=suffix,
            output=plan.output,
            role=plan.role,
            version=plan.version,
            finish=plan.finish,
        )
        truth[call.call_id] = (above[:reused] + suffix, plan.output)
        tree.add(call)
    return Grown(tree, truth)


def make_call(
    call_id: str,
    *,
    index: int = 0,
    execution_id: str = "e",
    parent_id: str | None = None,
    reused: int = 0,
    suffix: list[int],
    output: list[int],
    role: Role = Role.MAIN,
    version: int = 0,
    finish: FinishReason = FinishReason.STOP,
) -> Call:
    """A call whose log-probabilities tell which token of which call they belong to."""
    half = len(output) // 2
    return Call(
        call_id=call_id,
        execution_id=execution_id,
        index=index,
        dialect="anthropic",
        parent_id=parent_id,
        reused=reused,
        suffix_ids=suffix,
        output_ids=output,
        output_logprobs=[-(index + 1) - i / 64 for i in range(len(output))],
        versions=[VersionSpan(version, 0, half), VersionSpan(version + 1, half, len(output))],
        finish=finish,
        role=role,
        role_why="planned",
        fork=ForkReason.NEW_CONVERSATION if parent_id is None else None,
        started_at=float(index),
        ended_at=index + 0.5,
    )


def executions() -> st.SearchStrategy[Grown]:
    """One execution of up to ten calls."""
    return st.builds(grow, st.just("e"), st.lists(PLANS, max_size=10), st.just([0]))


VERDICTS = st.sampled_from(
    [
        Verdict(kind=VerdictKind.SCORED, ending=Ending.FINISHED, reward=reward)
        for reward in [0.0, 0.25, 1.0] * 3
    ]
    + [
        Verdict(kind=kind, ending=Ending.FINISHED)
        for kind in VerdictKind
        if kind is not VerdictKind.SCORED
    ]
)
"""Every kind; rewards of few values, so that groups without spread occur."""


@st.composite
def groups(draw: st.DrawFn, name: str = "g", most: int = 5) -> list[Member]:
    """Up to `most` executions of one task: they share their first prompt tokens."""
    head = draw(st.lists(TOKENS, min_size=1, max_size=6))
    members = draw(st.lists(st.tuples(st.lists(PLANS, max_size=4), VERDICTS), max_size=most))
    return [
        (f"{name}-{i}", grow(f"{name}-{i}", steps, head).tree, verdict)
        for i, (steps, verdict) in enumerate(members)
    ]


LINES = [list(run) for length in range(2, 8) for run in itertools.product(range(2), repeat=length)]
"""Token sequences that often share a prefix."""

SETS = st.lists(st.sampled_from(LINES), max_size=6)
"""Sequences to pack."""


@st.composite
def samples(draw: st.DrawFn) -> list[ExecutionSample]:
    """Samples of up to two groups, straight from token sequences; each owns its last tokens."""
    shape = st.tuples(st.sampled_from(["g1", "g2"]), st.lists(st.sampled_from(LINES), max_size=3))
    return [
        ExecutionSample(
            execution_id=f"e{number}",
            group_id=group_id,
            advantage=0.5,
            reward=1.0,
            trajectories=[
                trajectory(f"e{number}-{i}", tokens, owned=len(tokens) // 2)
                for i, tokens in enumerate(lines)
            ],
            oldest_version=0,
            owned_tokens=sum(len(tokens) // 2 for tokens in lines),
        )
        for number, (group_id, lines) in enumerate(draw(st.lists(shape, max_size=5)))
    ]


def trajectory(leaf: str, tokens: list[int], owned: int = 1) -> Trajectory:
    """A trajectory that owns its last tokens."""
    return Trajectory(
        leaf_call_id=leaf,
        role=Role.MAIN,
        token_ids=tokens,
        owned=list(range(len(tokens) - owned, len(tokens))),
        behaviour_logprobs=[-1.0] * owned,
    )
