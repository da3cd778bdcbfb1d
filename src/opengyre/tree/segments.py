"""The prefix tree of token sequences, as runs of tokens.

Invariant: a segment is a maximal run that the same sequences pass, and it comes after its parent;
children follow their parent in depth-first order. Sequences that are equal share all segments.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

STRIDE = 1024
"""Tokens compared at once: list slices compare in C, single tokens in Python."""


@dataclass(frozen=True)
class Segment:
    """Nodes [start, end); node start has depth `position` and hangs on the parent's last node."""

    start: int
    end: int
    parent: int
    """Index of a segment; -1 for a root."""
    position: int
    trajectories: list[int]
    """Those that pass it, ascending; all pass it whole."""

    def __len__(self) -> int:
        return self.end - self.start


def segments_of(sequences: Sequence[Sequence[int]]) -> list[Segment]:
    """The segments of a packed tree, without its nodes."""
    segments: list[Segment] = []
    end = 0
    bunches = _by_next_token(sequences, range(len(sequences)), 0)
    waiting = [(-1, 0, bunch) for bunch in reversed(bunches)]
    while waiting:
        parent, depth, bunch = waiting.pop()
        reach = _common_end(sequences, bunch, depth)
        segments.append(Segment(end, end + reach - depth, parent, depth, bunch))
        end += reach - depth
        index = len(segments) - 1
        parted = _by_next_token(sequences, bunch, reach)
        waiting.extend((index, reach, part) for part in reversed(parted))
    return segments


def _by_next_token(
    sequences: Sequence[Sequence[int]], bunch: Iterable[int], depth: int
) -> list[list[int]]:
    parts: dict[int, list[int]] = {}
    for index in bunch:
        if depth < len(sequences[index]):
            parts.setdefault(sequences[index][depth], []).append(index)
    return list(parts.values())


def _common_end(sequences: Sequence[Sequence[int]], bunch: Sequence[int], depth: int) -> int:
    """How far all of a bunch, equal up to depth, stay equal."""
    lead = sequences[bunch[0]]
    end = min(len(sequences[index]) for index in bunch)
    for index in bunch[1:]:
        end = _agreement(lead, sequences[index], depth, end)
    return end


def _agreement(one: Sequence[int], other: Sequence[int], start: int, end: int) -> int:
    while start < end:
        stop = min(start + STRIDE, end)
        if one[start:stop] != other[start:stop]:
            while one[start] == other[start]:
                start += 1
            return start
        start = stop
    return end
