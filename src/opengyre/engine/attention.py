"""Attention of one step over the paged pool.

A step's tokens are rows of one flat batch. Rows of sequences with equally many new tokens form a
group: one gather of blocks and one attention call a layer. Python work does not grow with layers or
heads; padding blocks are hidden by the mask.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from opengyre.engine.pool import KvPool
from opengyre.engine.sequence import Sequence

HIDDEN = -1e30
"""Added to scores of tokens that a row may not see: its exponential is exactly 0 in every dtype."""


@dataclass(slots=True)
class Group:
    """`count` sequences with `new` tokens each."""

    count: int
    new: int
    start: int
    """First row in the flat batch."""
    rows: Tensor
    """What the pool gathers for them."""
    mask: Tensor
    """[count, 1, rows, width * block_tokens], added to scores."""


class PagedAttend:
    """The model's `Attend` for one step: writes the new KV, reads all of it."""

    def __init__(self, pool: KvPool, heads: int, work: Seq[tuple[int, list[Sequence]]]) -> None:
        """`work`: (new tokens of each, sequences)."""
        self._pool = pool
        self._shared = heads // pool.kv_heads
        ids, positions, blocks, offsets = list[int](), list[int](), list[int](), list[int]()
        for new, sequences in work:
            for seq in sequences:
                end = seq.computed + new
                ids += seq.tokens[seq.computed : end]
                positions += range(seq.computed, end)
                at = pool.place(seq.table, seq.computed, end)
                blocks += at[0]
                offsets += at[1]
        flat = torch.tensor([ids, positions, blocks, offsets], device=pool.device)
        self.ids, self.positions, into, offset = flat.unbind()
        self._at = (into, offset)
        self._groups: list[Group] = []
        start = 0
        for new, sequences in work:
            self._groups.append(self._group(new, sequences, start))
            start += new * len(sequences)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._pool.write(layer, self._at, torch.cat((k, v), 1))
        if len(self._groups) == 1:
            return self._attend(layer, self._groups[0], q)
        parts = [
            self._attend(layer, group, q[group.start : group.start + group.count * group.new])
            for group in self._groups
        ]
        return torch.cat(parts)

    def _attend(self, layer: int, group: Group, q: Tensor) -> Tensor:
        count, new, heads, size = group.count, group.new, self._pool.kv_heads, q.shape[-1]
        keys, values = self._pool.read(layer, group.rows, count).unbind()
        # Query heads that share a KV head become more rows of it: no KV is repeated.
        split = q.view(count, new, heads, self._shared, size).transpose(1, 2)
        rows = split.reshape(count, heads, -1, size)
        out = scaled_dot_product_attention(rows, keys, values, attn_mask=group.mask)
        out = out.view(count, heads, new, self._shared, size).transpose(1, 2)
        return out.reshape(count * new, heads * self._shared, size)

    def _group(self, new: int, sequences: list[Sequence], start: int) -> Group:
        size = self._pool.block_tokens
        used = [-(-(seq.computed + new) // size) for seq in sequences]
        width, count = max(used), len(sequences)
        tables = [seq.table[:n] + [0] * (width - n) for seq, n in zip(sequences, used, strict=True)]
        last = self.positions[start : start + count * new].view(count, 1, new, 1)
        if new > 1:  # a row each for the query heads that share a KV head; else broadcast
            last = last.repeat_interleave(self._shared, dim=2)
        seen = torch.arange(width * size, device=self._pool.device)
        mask = ((seen > last) * HIDDEN).to(self._pool.dtype)
        return Group(count, new, start, self._pool.rows(tables), mask)
