"""Attention of a packed tree: every node sees exactly its ancestors and itself.

Separate sequences are the special case of a forest of chains. The linear layers of the model run
once over the N packed nodes; only here are nodes brought together: the queries of a segment (a run
without a branch point) meet the gathered keys of its ancestors and, causally, their own. Segments of
like size share one call. The plan is made once a micro-step and serves all layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from opengyre.tree.segments import Segment

CALL_PAIRS = 4096
"""Query-key pairs whose cost equals one more attention call (measured on a CPU core): padding may
add so many before a call of its own is cheaper."""

QUERY_BLOCK = 512
"""Queries of a segment taken at a time: a mask costs its whole rectangle, so long segments are cut
to come near the causal triangle."""


@dataclass(frozen=True)
class Piece:
    """Nodes [start, end) in a row, and the indices of all nodes above them, root first."""

    start: int
    end: int
    above: Tensor

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class _Call:
    """One attention call: B padded pieces of at most L queries under at most P nodes above."""

    queries: Tensor
    """[B, L] node indices; padding repeats node 0 and its output is never read."""
    keys: Tensor
    """[B, P + L] node indices: those above, then the piece's own."""
    mask: Tensor | None
    """[B or 1, 1, L, P + L] to add to the scores; None = plain causal (P = 0)."""


@dataclass(frozen=True)
class TreeAttention:
    """An `Attend` for one packed tree."""

    calls: list[_Call]
    where: Tensor
    """[N] place of each node among the calls' padded outputs, laid end to end."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q [N, heads, d], k and v [N, kv_heads, d] -> [N, heads, d]."""
        outputs = [_attend(call, q, k, v).flatten(0, 1) for call in self.calls]
        return torch.cat(outputs).index_select(0, self.where)


def plan(segments: Sequence[Segment], dtype: torch.dtype, device: torch.device) -> TreeAttention:
    """Plan the attention of a packed tree; dtype is the model's (masks are made in it)."""
    groups = _group([block for piece in pieces(segments) for block in _blocks(piece)])
    where = torch.empty(segments[-1].end, dtype=torch.int64)
    offset = 0
    for group in groups:
        longest = max(p.length for p in group)
        for row, p in enumerate(group):
            first = offset + row * longest
            where[p.start : p.end] = torch.arange(first, first + p.length)
        offset += len(group) * longest
    return TreeAttention([_call(group, dtype, device) for group in groups], where.to(device))


def pieces(segments: Sequence[Segment]) -> list[Piece]:
    """Each segment with the nodes above it."""
    found: list[Piece] = []
    for segment in segments:
        above = torch.empty(0, dtype=torch.int64)
        if segment.parent >= 0:
            last = found[segment.parent]
            above = torch.cat((last.above, torch.arange(last.start, last.end)))
        found.append(Piece(segment.start, segment.end, above))
    return found


def _blocks(piece: Piece) -> list[Piece]:
    if not len(piece.above) or piece.length <= QUERY_BLOCK:
        return [piece]
    cuts = [*range(piece.start, piece.end, QUERY_BLOCK), piece.end]
    return [
        Piece(a, b, torch.cat((piece.above, torch.arange(piece.start, a))))
        for a, b in pairwise(cuts)
    ]


def _group(blocks: list[Piece]) -> list[list[Piece]]:
    """Neighbours in size share a call while padding costs less than a further call."""
    groups: list[list[Piece]] = []
    for piece in sorted(blocks, key=lambda p: (len(p.above), p.length, p.start)):
        if groups and _may_join(groups[-1], piece):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _may_join(group: list[Piece], piece: Piece) -> bool:
    if bool(len(group[0].above)) != bool(len(piece.above)):
        return False  # roots need no mask: the causal kernel skips half the work
    return _pairs([*group, piece]) <= _pairs(group) + _pairs([piece]) + CALL_PAIRS


def _pairs(group: list[Piece]) -> int:
    longest = max(p.length for p in group)
    return len(group) * longest * (max(len(p.above) for p in group) + longest)


def _call(group: list[Piece], dtype: torch.dtype, device: torch.device) -> _Call:
    longest, highest = max(p.length for p in group), max(len(p.above) for p in group)
    own = torch.zeros(len(group), longest, dtype=torch.int64)
    above = torch.zeros(len(group), highest, dtype=torch.int64)
    for row, p in enumerate(group):
        own[row, : p.length] = torch.arange(p.start, p.end)
        above[row, : len(p.above)] = p.above
    mask = _mask([len(p.above) for p in group], longest, dtype).to(device) if highest else None
    return _Call(own.to(device), torch.cat((above, own), dim=1).to(device), mask)


def _mask(heights: list[int], longest: int, dtype: torch.dtype) -> Tensor:
    """Additive mask; one row for all when all pieces have equally many nodes above."""
    rows = torch.tensor(sorted(set(heights)) if len(set(heights)) == 1 else heights)
    highest = max(heights)
    hidden = torch.ones(longest, highest + longest, dtype=torch.bool).triu(highest + 1)
    absent = torch.arange(highest + longest)[None] >= rows[:, None]
    absent[:, highest:] = False
    blocked = hidden[None] | absent[:, None]
    return torch.zeros(blocked.shape, dtype=dtype).masked_fill_(blocked, -torch.inf)[:, None]


def _attend(call: _Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out = scaled_dot_product_attention(
        _gather(q, call.queries),
        _gather(k, call.keys),
        _gather(v, call.keys),
        attn_mask=call.mask,
        is_causal=call.mask is None,
        enable_gqa=True,
    )
    return out.transpose(1, 2)


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """[N, heads, d] at [B, T] -> [B, heads, T, d]."""
    return x.index_select(0, index.flatten()).view(*index.shape, *x.shape[1:]).transpose(1, 2)
