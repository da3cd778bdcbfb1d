"""Chooses at most J_max root-to-leaf paths of an execution.

Invariant: a sampled token is owned by at most one selected path, the first that holds it, and only
if its own call has a trainable role. Along any path a call gives the first k tokens of its output,
so what is owned of a call is one number.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from opengyre.core.records import Call, Trajectory
from opengyre.tree.ledger import Ledger
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


def select(tree: ExecutionTree, j_max: int, rng: random.Random) -> Selection:
    """Draw leaves, highest class first, each with probability proportional to its untrained tokens."""
    paths = [_Path.to(tree, leaf) for leaf in tree.leaves()]
    marks = _Marks()
    trajectories: list[Trajectory] = []
    while len(trajectories) < j_max and (path := _draw(paths, marks, rng)) is not None:
        trajectories.append(_trajectory(tree, path, marks))
        marks.take(path)
    return Selection(
        trajectories=trajectories,
        ledger=_ledger(tree, marks),
        owned_by_call=dict(marks.owned),
        oldest_version=_oldest_version(tree, marks),
    )


@dataclass(frozen=True)
class _Path:
    leaf: Call
    kept: list[tuple[Call, int]]
    """Trainable calls on the path, root first, and how many sampled tokens each gives."""

    @classmethod
    def to(cls, tree: ExecutionTree, leaf: Call) -> "_Path":
        stretches = tree.path(leaf.call_id)
        kept = [(s.call, s.sampled) for s in stretches if trains(s.call.role) and s.sampled]
        return cls(leaf, kept)


@dataclass
class _Marks:
    owned: Counter[str] = field(default_factory=Counter)
    """Per call: sampled tokens on at least one selected path."""
    twice: Counter[str] = field(default_factory=Counter)
    """Per call: sampled tokens on at least two."""

    def take(self, path: _Path) -> None:
        for call, kept in path.kept:
            before = self.owned[call.call_id]
            self.twice[call.call_id] = max(self.twice[call.call_id], min(before, kept))
            self.owned[call.call_id] = max(before, kept)

    def untrained(self, path: _Path) -> int:
        return sum(max(0, kept - self.owned[call.call_id]) for call, kept in path.kept)


def _draw(paths: list[_Path], marks: _Marks, rng: random.Random) -> _Path | None:
    weights = [marks.untrained(path) for path in paths]
    for role in PRIORITY:
        total = sum(w for w, path in zip(weights, paths, strict=True) if path.leaf.role is role)
        if total == 0:
            continue
        ticket = rng.randrange(total)
        for weight, path in zip(weights, paths, strict=True):
            if path.leaf.role is role:
                ticket -= weight
                if ticket < 0:
                    return path
    return None


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
        token_ids=tree.full_ids(path.leaf.call_id),
        owned=owned,
        behaviour_logprobs=logprobs,
    )


def _ledger(tree: ExecutionTree, marks: _Marks) -> Ledger:
    ledger = Ledger()
    for call in tree.calls:
        sampled, owned = len(call.output_ids), marks.owned[call.call_id]
        ledger.sampled += sampled
        if trains(call.role):
            ledger.trained += owned - marks.twice[call.call_id]
            ledger.shared += marks.twice[call.call_id]
            ledger.cut += sampled - owned
        else:
            ledger.exclude(call.role.value, sampled)
    return ledger


def _oldest_version(tree: ExecutionTree, marks: _Marks) -> int | None:
    versions = [
        span.version
        for call in tree.calls
        for span in call.versions
        if span.start < min(span.end, marks.owned[call.call_id])
    ]
    return min(versions, default=None)
