"""Chooses at most J_max root-to-leaf paths of an execution.

Invariant: a sampled token is owned by at most one selected path, the first that holds it, and only
if its own call has a trainable role and the token lies within the longest trajectory. Along any path
a call gives the first k tokens of its output, so what is owned of a call is one number. With the same
seed the paths of a smaller J_max are the first ones of a larger.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from opengyre.core.reasons import Untrained
from opengyre.core.records import Call, Trajectory
from opengyre.tree.ledger import Ledger, UnbalancedLedgerError
from opengyre.tree.record import ExecutionTree, prompt_length
from opengyre.tree.roles import PRIORITY, trains


@dataclass(frozen=True)
class Selection:
    """What of an execution is trained."""

    trajectories: list[Trajectory]
    """In order of drawing."""
    ledger: Ledger
    owned_by_call: dict[str, int]
    """Per call, how many of its first sampled tokens are owned; calls without any are absent."""
    oldest_version: int | None
    """Lowest weight version that sampled an owned token; None when nothing is owned."""
    truncated_by_call: dict[str, int]
    """Per call of a trainable role, how many of its last sampled tokens are beyond what can be
    trained; calls without any are absent."""

    def check(self) -> None:
        """Raises UnbalancedLedgerError when the books and the trajectories differ."""
        self.ledger.check()
        targets = sum(len(chosen.owned) for chosen in self.trajectories)
        if not targets == self.ledger.owned == sum(self.owned_by_call.values()):
            raise UnbalancedLedgerError(
                f"wanted {targets} targets of {len(self.trajectories)} trajectories in the books; "
                f"found {self.ledger}"
            )


def select(
    tree: ExecutionTree, j_max: int | None, rng: random.Random, longest: int | None = None
) -> Selection:
    """Draw leaves, highest class first, each with probability proportional to its untrained tokens.

    j_max None: until nothing is left. longest: tokens that a trajectory may have; what is sampled
    beyond is truncated, whatever path it is on.
    """
    hat = _Hat([_Path.to(tree, leaf, longest) for leaf in tree.leaves()])
    marks = _Marks()
    trajectories: list[Trajectory] = []
    while (j_max is None or len(trajectories) < j_max) and (path := hat.draw(rng)) is not None:
        trajectories.append(_trajectory(tree, path, marks))
        hat.settle(marks.take(path))
    selection = Selection(
        trajectories=trajectories,
        ledger=_ledger(tree, marks, longest),
        owned_by_call=dict(marks.owned),
        oldest_version=_oldest_version(tree, marks),
        truncated_by_call={
            call.call_id: beyond
            for call in tree.calls
            if trains(call.role) and (beyond := len(call.output_ids) - _within(call, longest))
        },
    )
    selection.check()
    return selection


@dataclass(frozen=True)
class _Path:
    leaf: Call
    kept: list[tuple[Call, int]]
    """Trainable calls on the path, root first, and how many sampled tokens each gives."""

    @classmethod
    def to(cls, tree: ExecutionTree, leaf: Call, longest: int | None) -> "_Path":
        kept = [
            (stretch.call, min(stretch.sampled, _within(stretch.call, longest)))
            for stretch in tree.path(leaf.call_id)
            if trains(stretch.call.role)
        ]
        return cls(leaf, [(call, tokens) for call, tokens in kept if tokens])


@dataclass
class _Marks:
    owned: Counter[str] = field(default_factory=Counter)
    """Per call: sampled tokens on at least one selected path."""
    twice: Counter[str] = field(default_factory=Counter)
    """Per call: sampled tokens on at least two."""

    def take(self, path: _Path) -> Iterator[tuple[str, int, int]]:
        """Own what is new; yields (call, owned before, owned now) where that changed."""
        for call, kept in path.kept:
            before = self.owned[call.call_id]
            self.twice[call.call_id] = max(self.twice[call.call_id], min(before, kept))
            if kept > before:
                self.owned[call.call_id] = kept
                yield call.call_id, before, kept


class _Hat:
    """Paths with their untrained tokens, which only shrink."""

    def __init__(self, paths: list[_Path]) -> None:
        self._paths = paths
        self._untrained = [sum(tokens for _, tokens in path.kept) for path in paths]
        self._passing: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, path in enumerate(paths):
            for call, kept in path.kept:
                self._passing[call.call_id].append((number, kept))

    def settle(self, changes: Iterator[tuple[str, int, int]]) -> None:
        for call_id, before, now in changes:
            for number, kept in self._passing[call_id]:
                self._untrained[number] -= max(0, min(kept, now) - before)

    def draw(self, rng: random.Random) -> _Path | None:
        """None when nothing is left."""
        for role in PRIORITY:
            total = sum(weight for weight, _ in self._of(role))
            if total == 0:
                continue
            ticket = rng.randrange(total)
            for weight, path in self._of(role):
                ticket -= weight
                if ticket < 0:
                    return path
        return None

    def _of(self, role: str) -> Iterator[tuple[int, _Path]]:
        pairs = zip(self._untrained, self._paths, strict=True)
        return ((weight, path) for weight, path in pairs if path.leaf.role == role)


def _within(call: Call, longest: int | None) -> int:
    """How many of a call's sampled tokens a trajectory can hold."""
    sampled = len(call.output_ids)
    return sampled if longest is None else min(sampled, max(0, longest - prompt_length(call)))


def _trajectory(tree: ExecutionTree, path: _Path, marks: _Marks) -> Trajectory:
    owned: list[int] = []
    logprobs: list[float] = []
    for call, kept in path.kept:
        first = marks.owned[call.call_id]
        start = prompt_length(call)
        owned += range(start + first, start + kept)
        logprobs += call.output_logprobs[first:kept]
    return Trajectory(
        leaf_call_id=path.leaf.call_id,
        role=path.leaf.role,
        token_ids=tree.full_ids(path.leaf.call_id)[: owned[-1] + 1],
        owned=owned,
        behaviour_logprobs=logprobs,
    )


def _ledger(tree: ExecutionTree, marks: _Marks, longest: int | None) -> Ledger:
    ledger = Ledger()
    for call in tree.calls:
        part = Ledger(sampled=len(call.output_ids))
        if trains(call.role):
            owned, within = marks.owned[call.call_id], _within(call, longest)
            part.shared = marks.twice[call.call_id]
            part.trained = owned - part.shared
            part.cut = within - owned
            part.truncate(Untrained.TOKEN_BUDGET.value, part.sampled - within)
        else:
            part.exclude(call.role.value, part.sampled)
        ledger.add_role(call.role.value, part)
    return ledger


def _oldest_version(tree: ExecutionTree, marks: _Marks) -> int | None:
    versions = [
        span.version
        for call in tree.calls
        for span in call.versions
        if span.start < min(span.end, marks.owned[call.call_id])
    ]
    return min(versions, default=None)
