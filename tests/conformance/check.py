"""The recorded tree against what the scripted engine sampled, token for token.

Invariant: nothing here looks into the proxy: prompts and answers come from the engine's side,
calls from the store's.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opengyre.core.reasons import FinishReason
from opengyre.core.records import Call
from opengyre.tree.record import ExecutionTree, full_length
from opengyre.tree.roles import trains
from opengyre.tree.select import select
from opengyre.tree.show import BranchLine, describe
from tests.conformance.cells import Sample

J_MAX = 5


@dataclass
class Tally:
    """What all checked scenarios of this session came to."""

    executions: int = 0
    calls: int = 0
    sampled: int = 0
    forks: Counter[str] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)

    def add(self, calls: Sequence[Call]) -> None:
        """A tree that passed."""
        self.executions += 1
        self.calls += len(calls)
        self.sampled += sum(len(call.output_ids) for call in calls)
        self.forks.update(call.fork.value for call in calls if call.fork is not None)
        self.roles.update(call.role.value for call in calls)

    def lines(self) -> list[str]:
        """For the end of the session's output."""
        return [
            f"{self.executions} executions, {self.calls} calls, {self.sampled} sampled tokens: "
            "each in the tree once (0 lost, 0 doubled), every ledger balanced",
            f"calls by role: {_counts(self.roles)}",
            f"forks by reason: {_counts(self.forks)}",
        ]


TALLY = Tally()


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(counter.items())) or "none"


def check(calls: Sequence[Call], samples: Sequence[Sample]) -> None:
    """Raises AssertionError: which call, what was wanted and what was recorded."""
    tree = ExecutionTree(calls)
    tree.check()
    pairs = match(calls, samples)
    for call, sample in pairs:
        same_tokens(tree, call, sample)
    forks_have_reasons(calls)
    sampled = sum(sample.given for sample in samples)
    ledger_balances(tree, sampled, J_MAX)
    ledger_balances(tree, sampled, len(calls) + 1)


def match(calls: Sequence[Call], samples: Sequence[Sample]) -> list[tuple[Call, Sample]]:
    """Each recorded call with the answer that it must hold: none lost, none doubled."""
    by_id = {request_id: sample for sample in samples for request_id in sample.request_ids}
    strangers = [call.call_id for call in calls if call.call_id not in by_id]
    assert not strangers, f"recorded, but never asked of the engine: {strangers}"
    pairs = [(call, by_id[call.call_id]) for call in calls]
    times = Counter(id(sample) for _, sample in pairs)
    for sample in samples:
        assert times[id(sample)] == 1, f"{sample.name!r} was recorded {times[id(sample)]} times"
    return pairs


def same_tokens(tree: ExecutionTree, call: Call, sample: Sample) -> None:
    """The prompt that the engine was given, and the tokens that it handed over."""
    assert tree.prompt_ids(call.call_id) == sample.prompt_ids, f"prompt of {sample.name!r}"
    assert call.output_ids == sample.answer[: sample.given], f"tokens of {sample.name!r}"
    assert len(call.output_logprobs) == len(call.output_ids)
    if call.finish is FinishReason.STOP:
        assert sample.given == len(sample.answer), f"{sample.name!r} is not whole"


def forks_have_reasons(calls: Sequence[Call]) -> None:
    """Without one are the execution's first call, and one call that goes on from all of another."""
    by_id = {call.call_id: call for call in calls}
    straight = [call for call in calls if call.fork is None]
    for call in straight:
        parent = by_id[call.parent_id] if call.parent_id is not None else None
        assert parent is None or call.reused == full_length(parent), f"{call.call_id}: no reason"
    for parent_id, times in Counter(call.parent_id for call in straight).items():
        assert times == 1, f"{times} calls go on from {parent_id} without a reason"


def ledger_balances(tree: ExecutionTree, sampled: int, j_max: int) -> None:
    """Every sampled token once; what is trained is trained once, and nothing auxiliary."""
    selection = select(tree, j_max, random.Random(1))
    ledger = selection.ledger
    ledger.check()
    assert ledger.sampled == sampled, f"{ledger.sampled} tokens in the tree, {sampled} sampled"
    trainable = sum(len(call.output_ids) for call in tree.calls if trains(call.role))
    assert ledger.trained + ledger.shared + ledger.cut == trainable
    owned = sum(len(trajectory.owned) for trajectory in selection.trajectories)
    assert owned == ledger.trained + ledger.shared
    if j_max > len(tree):
        assert ledger.cut == 0
    assert all(trains(tree.call(call_id).role) for call_id in selection.owned_by_call)


@dataclass
class _Branch:
    title: str
    below: list["_Branch"]

    def lines(self, depth: int = 0) -> list[str]:
        inner = sorted(branch.lines(depth + 1) for branch in self.below)
        return ["  " * depth + self.title, *(line for lines in inner for line in lines)]


def shape(calls: Sequence[Call], samples: Sequence[Sample]) -> list[str]:
    """ROLE[ (FORK)]: NAMES, two spaces a level, siblings sorted."""
    names = {rid: sample.name for sample in samples for rid in sample.request_ids}
    tree = ExecutionTree(calls)
    root = _Branch("", [])
    above = [root]
    for line in describe(tree):
        branch = _Branch(_title(line, names), [])
        del above[line.depth + 1 :]
        above[-1].below.append(branch)
        above.append(branch)
    inner = sorted(branch.lines() for branch in root.below)
    return [line for lines in inner for line in lines]


def _title(line: BranchLine, names: Mapping[str, str]) -> str:
    fork = f" ({line.fork})" if line.fork else ""
    said = " ".join(names.get(call_id, "?") for call_id in line.call_ids)
    return f"{line.role}{fork}: {said}"
