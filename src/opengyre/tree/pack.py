"""Packs trajectories as a tree, and cuts samples into micro-steps under a budget of packed tokens.

Invariant of a packed tree: a node is one token; its parent has a smaller index and its position is
its depth; segments tile the nodes; walking a trajectory's path gives back its token_ids exactly.
Invariant of a cut: every trajectory is in exactly one micro-step, whole; only a trajectory that is
longer than the budget by itself makes a micro-step that exceeds it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from opengyre.core.protocols import IdSource
from opengyre.core.records import ExecutionSample, MicroStep, Trajectory
from opengyre.tree.segments import Segment, segments_of


@dataclass(frozen=True)
class PackedTree:
    """Nodes and segments in depth-first order."""

    token_ids: list[int]
    parents: list[int]
    """Node index; -1 for a root."""
    positions: list[int]
    segments: list[Segment]
    paths: list[list[int]]
    """Per trajectory, the node of each of its tokens."""

    def check(self, sequences: Sequence[Sequence[int]]) -> None:
        """Assert the invariant against the token sequences that were packed."""
        for node, (parent, position) in enumerate(zip(self.parents, self.positions, strict=True)):
            assert parent < node
            assert position == (0 if parent < 0 else self.positions[parent] + 1)
        end = 0
        for index, segment in enumerate(self.segments):
            assert segment.start == end < segment.end
            assert segment.parent < index
            assert segment.position == self.positions[segment.start]
            above = -1 if segment.parent < 0 else self.segments[segment.parent].end - 1
            assert self.parents[segment.start] == above
            end = segment.end
        assert end == len(self.token_ids)
        for path, sequence in zip(self.paths, sequences, strict=True):
            assert [self.token_ids[node] for node in path] == list(sequence)
            assert [self.parents[node] for node in path] == [-1, *path][: len(path)]


def pack(trajectories: Iterable[Trajectory]) -> PackedTree:
    """Merge equal token prefixes, also across executions and groups."""
    return pack_sequences([trajectory.token_ids for trajectory in trajectories])


def pack_sequences(sequences: Sequence[Sequence[int]]) -> PackedTree:
    """pack() of bare token sequences."""
    segments = segments_of(sequences)
    tree = PackedTree([], [], [], segments, [[] for _ in sequences])
    for segment in segments:
        lead = sequences[segment.trajectories[0]]
        depth, nodes = segment.position, range(segment.start, segment.end)
        above = -1 if segment.parent < 0 else segments[segment.parent].end - 1
        tree.token_ids.extend(lead[depth : depth + len(segment)])
        tree.positions.extend(range(depth, depth + len(segment)))
        tree.parents.extend([above, *nodes[:-1]])
        for passing in segment.trajectories:
            tree.paths[passing].extend(nodes)
    return tree


@dataclass(frozen=True)
class _Piece:
    """What is not parted further: an execution, or one trajectory of an execution over budget."""

    sample: int
    trajectories: list[int]
    segments: list[int]


def micro_steps(
    samples: Sequence[ExecutionSample], token_budget: int, step: int, ids: IdSource
) -> list[MicroStep]:
    """Fewest packed tokens, then fewest micro-steps, of all cuts of the tree in depth-first order.

    Groups stay together as far as the budget allows, then executions, then trajectories.
    """
    segments = segments_of([t.token_ids for s in samples for t in s.trajectories])
    pieces = _in_order(_pieces(samples, segments, token_budget), samples)
    costs = [len(segment) for segment in segments]
    micros = []
    for start, end in pairwise(_cuts(pieces, costs, token_budget)):
        part = pieces[start:end]
        packed = sum(costs[i] for i in {i for piece in part for i in piece.segments})
        micros.append(_micro(samples, part, packed, step, ids.new("micro")))
    return micros


def _pieces(
    samples: Sequence[ExecutionSample], segments: list[Segment], budget: int
) -> list[_Piece]:
    passed: list[list[int]] = [[] for sample in samples for _ in sample.trajectories]
    for index, segment in enumerate(segments):
        for trajectory in segment.trajectories:
            passed[trajectory].append(index)
    pieces, first = [], 0
    for number, sample in enumerate(samples):
        own = passed[first : first + len(sample.trajectories)]
        first += len(sample.trajectories)
        union = sorted({index for path in own for index in path})
        if sum(len(segments[index]) for index in union) <= budget:
            pieces.append(_Piece(number, list(range(len(own))), union))
        else:
            pieces.extend(_Piece(number, [j], path) for j, path in enumerate(own))
    return pieces


def _in_order(pieces: list[_Piece], samples: Sequence[ExecutionSample]) -> list[_Piece]:
    """Group by group as they came; within a group as the tree is walked, so that kin are neighbours."""
    groups: dict[str, int] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, len(groups))
    return sorted(pieces, key=lambda p: (groups[samples[p.sample].group_id], p.segments, p.sample))


def _cuts(pieces: list[_Piece], costs: list[int], budget: int) -> list[int]:
    """Bounds of the best parts, by dynamic programming over every place to cut."""
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    """Up to each bound: packed tokens, parts, the bound before."""
    best += [(-1, 0, 0)] * len(pieces)
    for start in range(len(pieces)):
        tokens, parts, _ = best[start]
        seen: set[int] = set()
        packed = 0
        for end in range(start + 1, len(pieces) + 1):
            fresh = set(pieces[end - 1].segments) - seen
            seen |= fresh
            packed += sum(costs[index] for index in fresh)
            if packed > budget and end > start + 1:
                break
            candidate = (tokens + packed, parts + 1, start)
            if best[end][0] < 0 or candidate < best[end]:
                best[end] = candidate
    bounds = [len(pieces)]
    while bounds[-1]:
        bounds.append(best[bounds[-1]][2])
    return bounds[::-1]


def _micro(
    samples: Sequence[ExecutionSample], part: list[_Piece], packed: int, step: int, micro_id: str
) -> MicroStep:
    chosen: dict[int, list[int]] = {}
    for piece in part:
        chosen.setdefault(piece.sample, []).extend(piece.trajectories)
    held = [_share(samples[number], sorted(chosen[number])) for number in sorted(chosen)]
    return MicroStep(
        micro_id=micro_id,
        step=step,
        samples=held,
        packed_tokens=packed,
        expanded_tokens=sum(len(t.token_ids) for sample in held for t in sample.trajectories),
    )


def _share(sample: ExecutionSample, trajectories: list[int]) -> ExecutionSample:
    total = sample.owned_tokens or sum(len(t.owned) for t in sample.trajectories)
    chosen = [sample.trajectories[index] for index in trajectories]
    return replace(sample, trajectories=chosen, owned_tokens=total)
