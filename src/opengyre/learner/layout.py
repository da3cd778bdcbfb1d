"""Token sequences as nodes for one forward pass: shared prefixes once (tree), or each alone."""

from collections.abc import Sequence
from typing import Literal

from opengyre.tree.pack import PackedTree, pack_sequences
from opengyre.tree.segments import Segment

Mode = Literal["tree", "expanded"]
"""tree: a shared prefix is computed once; expanded: each sequence by itself, for comparison."""


def layout(sequences: Sequence[Sequence[int]], mode: Mode) -> PackedTree:
    """Lay out token sequences; paths are in their order."""
    return pack_sequences(sequences) if mode == "tree" else chains(sequences)


def chains(sequences: Sequence[Sequence[int]]) -> PackedTree:
    """A forest that shares nothing: every sequence is a segment of its own."""
    nodes = PackedTree([], [], [], [], [])
    for index, sequence in enumerate(sequences):
        start = len(nodes.token_ids)
        own = range(start, start + len(sequence))
        nodes.token_ids.extend(sequence)
        nodes.parents.extend([-1, *own[:-1]])
        nodes.positions.extend(range(len(sequence)))
        nodes.segments.append(Segment(own.start, own.stop, -1, 0, [index]))
        nodes.paths.append(list(own))
    return nodes
