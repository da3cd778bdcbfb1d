"""All calls of one execution, prefix-shared.

Invariant: a call's context is (parent's prompt + parent's output)[:reused] + suffix_ids, and its
parent was recorded before it. A sampled token belongs to exactly one call: two calls that sampled
the same tokens from the same context are two branches.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from opengyre.core.errors import OpenGyreError
from opengyre.core.records import Call
from opengyre.tree.roles import trains


class BrokenTreeError(OpenGyreError):
    """A recorded call does not fit the calls recorded before it."""


class Stretch(NamedTuple):
    """Positions [start, end) of a path: tokens that this call added to its context."""

    call: Call
    start: int
    end: int

    @property
    def sampled(self) -> int:
        """How many of them the policy sampled: always the first ones of the call's output."""
        return max(0, self.end - prompt_length(self.call))


def prompt_length(call: Call) -> int:
    """Tokens of the call's context."""
    return call.reused + len(call.suffix_ids)


def full_length(call: Call) -> int:
    """Tokens of the call's context and output."""
    return prompt_length(call) + len(call.output_ids)


def sampled_by_role(calls: Iterable[Call]) -> dict[str, int]:
    """Sampled tokens of each role."""
    sampled: Counter[str] = Counter()
    for call in calls:
        sampled[call.role.value] += len(call.output_ids)
    return dict(sampled)


class ExecutionTree:
    """Grows by one call at a time; a call that breaks an invariant is refused."""

    def __init__(self, calls: Iterable[Call] = ()) -> None:
        self._calls: dict[str, Call] = {}
        self._indices: set[int] = set()
        self._execution_id: str | None = None
        for call in calls:
            self.add(call)

    @property
    def calls(self) -> list[Call]:
        """In order of recording."""
        return list(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._calls

    def call(self, call_id: str) -> Call:
        """Raises BrokenTreeError when it was never recorded."""
        try:
            return self._calls[call_id]
        except KeyError:
            raise BrokenTreeError(
                f"wanted call {call_id}; found {len(self)} other calls; record it first"
            ) from None

    def add(self, call: Call) -> None:
        """Raises BrokenTreeError and keeps the tree as it was."""
        if call.call_id in self._calls or call.index in self._indices:
            raise BrokenTreeError(f"call {call.call_id} (index {call.index}) was recorded before")
        self._fits(call)
        self._calls[call.call_id] = call
        self._indices.add(call.index)
        self._execution_id = call.execution_id

    def path(self, call_id: str) -> list[Stretch]:
        """The call's prompt and output as stretches of the calls that made them, first token first."""
        call = self.call(call_id)
        return self._walk(call, full_length(call))

    def prompt_ids(self, call_id: str) -> list[int]:
        """The exact tokens that the call was given."""
        call = self.call(call_id)
        return _tokens(self._walk(call, prompt_length(call)))

    def full_ids(self, call_id: str) -> list[int]:
        """prompt_ids and the call's output."""
        return _tokens(self.path(call_id))

    def leaves(self) -> list[Call]:
        """Ends of trainable paths, in order of recording.

        A leaf has a trainable role and sampled tokens, and no other such call extends it through
        its whole output. So each sampled token of a trainable role is on the path of some leaf;
        auxiliary calls hide nothing.
        """
        tips = [call for call in self._calls.values() if _can_end(call)]
        covered = {below.call_id for call in tips for below in self._covered_by(call)}
        return [call for call in tips if call.call_id not in covered]

    def check(self) -> None:
        """Raise BrokenTreeError unless every invariant holds."""
        reached = dict.fromkeys(self._calls, 0)
        for leaf in self.leaves():
            for stretch in self.path(leaf.call_id):
                call_id = stretch.call.call_id
                reached[call_id] = max(reached[call_id], stretch.sampled)
        for call in self._calls.values():
            self._fits(call)
            if trains(call.role) and reached[call.call_id] != len(call.output_ids):
                raise BrokenTreeError(
                    f"call {call.call_id} has sampled tokens that no leaf reaches"
                )

    def _walk(self, call: Call, limit: int) -> list[Stretch]:
        stretches = []
        while True:
            if call.reused < limit:
                stretches.append(Stretch(call, call.reused, limit))
            limit = min(limit, call.reused)
            if call.parent_id is None or limit == 0:
                return stretches[::-1]
            call = self._calls[call.parent_id]

    def _covered_by(self, call: Call) -> Iterator[Call]:
        """Yield the nearest possible leaf below, if all of it is in this call's context.

        What lies further below is covered by that one or not at all from here.
        """
        limit = call.reused
        while call.parent_id is not None:
            call = self._calls[call.parent_id]
            if _can_end(call):
                if limit == full_length(call):
                    yield call
                return
            limit = min(limit, call.reused)

    def _fits(self, call: Call) -> None:
        for fault in (self._parent_fault(call), _output_fault(call), _version_fault(call)):
            if fault:
                raise BrokenTreeError(f"call {call.call_id} of {call.execution_id} {fault}")

    def _parent_fault(self, call: Call) -> str:
        if self._execution_id not in {None, call.execution_id}:
            return f"does not belong to {self._execution_id}, whose tree this is"
        if call.parent_id is None:
            return "" if call.reused == 0 else f"reuses {call.reused} tokens of no parent"
        parent = self._calls.get(call.parent_id)
        if parent is None:
            return f"extends {call.parent_id}, which is not recorded"
        if parent.index >= call.index:
            return f"has index {call.index}, not after its parent's {parent.index}"
        if not 0 <= call.reused <= full_length(parent):
            return f"reuses {call.reused} of its parent's {full_length(parent)} tokens"
        return ""


def _can_end(call: Call) -> bool:
    return trains(call.role) and bool(call.output_ids)


def _tokens(path: list[Stretch]) -> list[int]:
    tokens: list[int] = []
    for call, start, end in path:
        own = end - start
        tokens += call.suffix_ids[:own]
        tokens += call.output_ids[: max(0, own - len(call.suffix_ids))]
    return tokens


def _output_fault(call: Call) -> str:
    if len(call.output_logprobs) != len(call.output_ids):
        return (
            f"has {len(call.output_logprobs)} log-probabilities for {len(call.output_ids)} tokens"
        )
    if not all(map(math.isfinite, call.output_logprobs)):
        return "has a log-probability that is not finite"
    if call.output_ids and prompt_length(call) == 0:
        return "sampled tokens from an empty context"
    return ""


def _version_fault(call: Call) -> str:
    end = 0
    for span in call.versions:
        if span.start != end or span.end < span.start:
            return f"has a version span [{span.start}, {span.end}) after token {end}"
        end = span.end
    if end != len(call.output_ids):
        return f"has versions for {end} of {len(call.output_ids)} tokens"
    return ""
