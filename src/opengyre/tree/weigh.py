"""Turns a group of executions into samples: group-relative advantages over the scored ones.

Invariant: an execution whose verdict is not scored enters neither the loss nor the baseline, and
changes nothing for the others. All trajectories of an execution carry its one advantage.
"""

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opengyre.core.reasons import Untrained, VerdictKind
from opengyre.core.records import ExecutionSample, Verdict
from opengyre.tree.ledger import Ledger, all_excluded
from opengyre.tree.record import ExecutionTree, sampled_by_role
from opengyre.tree.select import Selection, select

SMALLEST_SPREAD = 1e-9
"""Relative to the largest reward: what lies closer together differs only by rounding."""


class ScoredExecution(NamedTuple):
    """One member of a group, or one try of it, with its verdict."""

    execution_id: str
    tree: ExecutionTree
    verdict: Verdict


@dataclass(frozen=True)
class GroupSamples:
    """What a group gives to the learner, and where its tokens went."""

    samples: list[ExecutionSample]
    """One per scored execution with a token to train; none without spread."""
    ledger_by_execution: dict[str, Ledger]
    """Of every execution that was passed in."""
    reward_mean: float | None
    """Over the scored executions; None when there is none."""
    spread: bool
    """Whether the scored rewards differ."""
    scored: int
    """How many executions the baseline is made of."""


def has_spread(rewards: Sequence[float]) -> bool:
    """Whether rewards differ by more than rounding."""
    if not rewards:
        return False
    scale = max(1.0, *map(abs, rewards))
    return max(rewards) / scale - min(rewards) / scale > SMALLEST_SPREAD


def advantages(rewards: Sequence[float], *, normalise: bool) -> list[float]:
    """Rewards minus their mean, over their standard deviation if asked; zeros without spread."""
    if not has_spread(rewards):
        return [0.0] * len(rewards)
    mean = statistics.fmean(rewards)
    unit = statistics.pstdev(rewards, mean) if normalise else 1.0
    return [(reward - mean) / unit for reward in rewards]


def samples_of_group(
    group_id: str,
    executions: Sequence[tuple[str, ExecutionTree, Verdict]],
    *,
    j_max: int | None,
    normalise: bool,
    rng: random.Random,
    longest: int | None = None,
) -> GroupSamples:
    """Select, weigh and account for one group. Draws from rng once, whatever the group holds.

    j_max and longest: as in select().
    """
    draws = draws_of(rng)
    members = [ScoredExecution(*execution) for execution in executions]
    scored = [m for m in members if m.verdict.kind is VerdictKind.SCORED]
    rewards = [_reward(member) for member in scored]
    spread = has_spread(rewards)
    samples: list[ExecutionSample] = []
    ledgers = {m.execution_id: _all_excluded(m, spread=spread) for m in members}
    if spread:
        for member, advantage in zip(scored, advantages(rewards, normalise=normalise), strict=True):
            selection = select(member.tree, j_max, draws(member.execution_id), longest)
            ledgers[member.execution_id] = selection.ledger
            samples += _sample(group_id, member, advantage, selection)
    for ledger in ledgers.values():
        ledger.check()
    mean = statistics.fmean(rewards) if rewards else None
    return GroupSamples(samples, ledgers, mean, spread, len(scored))


def draws_of(rng: random.Random) -> Callable[[str], random.Random]:
    """Each execution's own draws by its id, so that the others cannot change them."""
    seed = rng.getrandbits(64)
    return lambda execution_id: random.Random(f"{seed}/{execution_id}")


def _reward(member: ScoredExecution) -> float:
    reward = member.verdict.reward
    assert reward is not None, f"{member.execution_id} is scored without a reward"
    assert math.isfinite(reward), f"{member.execution_id} scored {reward}"
    return reward


def _all_excluded(member: ScoredExecution, *, spread: bool) -> Ledger:
    kind = member.verdict.kind
    no_spread = kind is VerdictKind.SCORED and not spread
    reason = Untrained.NO_SPREAD.value if no_spread else kind.value
    return all_excluded(sampled_by_role(member.tree.calls), reason)


def _sample(
    group_id: str, member: ScoredExecution, advantage: float, selection: Selection
) -> list[ExecutionSample]:
    if selection.oldest_version is None:
        return []
    return [
        ExecutionSample(
            execution_id=member.execution_id,
            group_id=group_id,
            advantage=advantage,
            reward=_reward(member),
            trajectories=selection.trajectories,
            oldest_version=selection.oldest_version,
            owned_tokens=sum(selection.owned_by_call.values()),
        )
    ]
