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
    blocks: Tensor
    """[count * width] block ids."""
    mask: Tensor
    """[count, 1, rows, width * block_tokens], added to scores."""


class PagedAttend:
    """The model's `Attend` for one step: writes the new KV, reads all of it."""

    def __init__(self, pool: KvPool, heads: int, work: Seq[tuple[int, list[Sequence]]]) -> None:
        """`work`: (new tokens of each, sequences)."""
        self._pool = pool
        self._shared = heads // pool.kv_heads
        ids, positions, slots = list[int](), list[int](), list[int]()
        for new, sequences in work:
            for seq in sequences:
                end = seq.computed + new
                ids += seq.tokens[seq.computed : end]
                positions += range(seq.computed, end)
                slots += pool.slots_of(seq.table, seq.computed, end)
        flat = torch.tensor([ids, positions, slots], device=pool.device)
        self.ids, self.positions, self._slots = flat[0], flat[1], flat[2]
        self._groups: list[Group] = []
        start = 0
        for new, sequences in work:
            self._groups.append(self._group(new, sequences, start))
            start += new * len(sequences)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._pool.layer_slots(layer).index_copy_(0, self._slots, torch.cat((k, v), 1))
        blocks = self._pool.layer_blocks(layer)
        if len(self._groups) == 1:
            return self._attend(self._groups[0], q, blocks)
        parts = [
            self._attend(group, q[group.start : group.start + group.count * group.new], blocks)
            for group in self._groups
        ]
        return torch.cat(parts)

    def _attend(self, group: Group, q: Tensor, blocks: Tensor) -> Tensor:
        count, new, heads, size = group.count, group.new, self._pool.kv_heads, q.shape[-1]
        kv = (
            blocks.index_select(0, group.blocks)
            .view(count, -1, 2, heads, size)
            .permute(2, 0, 3, 1, 4)
        )
        # Query heads that share a KV head become more rows of it: no KV is repeated.
        rows = (
            q.view(count, new, heads, self._shared, size)
            .transpose(1, 2)
            .reshape(count, heads, -1, size)
        )
        out = scaled_dot_product_attention(rows, kv[0], kv[1], attn_mask=group.mask)
        out = out.view(count, heads, new, self._shared, size).transpose(1, 2)
        return out.reshape(count * new, heads * self._shared, size)

    def _group(self, new: int, sequences: list[Sequence], start: int) -> Group:
        size = self._pool.block_tokens
        used = [-(-(seq.computed + new) // size) for seq in sequences]
        width = max(used)
        table = [seq.table[:n] + [0] * (width - n) for seq, n in zip(sequences, used, strict=True)]
        blocks = torch.tensor(table, device=self._pool.device).view(-1)
        count = len(sequences)
        last = self.positions[start : start + count * new].view(count, 1, new, 1)
        if new > 1:  # a row each for the query heads that share a KV head; else broadcast
            last = last.repeat_interleave(self._shared, dim=2)
        seen = torch.arange(width * size, device=self._pool.device)
        mask = ((seen > last) * HIDDEN).to(self._pool.dtype)
        return Group(count, new, start, blocks, mask)
