"""Segments are the runs of a prefix tree, no more and no fewer."""

import itertools

from hypothesis import given

from opengyre.tree.segments import STRIDE, segments_of
from tests.tree.strategies import SETS


@given(SETS)
def test_a_segment_ends_only_where_its_sequences_part_or_end(sequences: list[list[int]]) -> None:
    segments = segments_of(sequences)
    for index, segment in enumerate(segments):
        end = segment.position + len(segment)
        passing = segment.trajectories
        assert len({tuple(sequences[t][:end]) for t in passing}) == 1
        assert passing == sorted(passing)
        parts = {sequences[t][end] if len(sequences[t]) > end else None for t in passing}
        assert len(parts) > 1 or parts == {None}
        children = [child.trajectories for child in segments if child.parent == index]
        assert sorted(itertools.chain.from_iterable(children)) == [
            t for t in passing if len(sequences[t]) > end
        ]


def test_long_runs_part_at_the_right_token() -> None:
    for part in (STRIDE - 1, STRIDE, STRIDE + 1, 2 * STRIDE):
        lines = [[7] * part + [8] * STRIDE, [7] * part + [9] * 3, [7] * part]
        segments = segments_of(lines)
        assert [len(segment) for segment in segments] == [part, STRIDE, 3]
        assert [segment.trajectories for segment in segments] == [[0, 1, 2], [0], [1]]
