"""The KV memory: one tensor, allocated when first used.

Slot of token t of a sequence = table[t // block_tokens] * block_tokens + t % block_tokens.
"""

import torch
from torch import Tensor

from opengyre.model.qwen3 import Qwen3


class KvPool:
    """Keys and values of all layers, [layers, slots, 2 * kv_heads, head_dim] (keys first)."""

    def __init__(self, model: Qwen3, blocks: int, block_tokens: int) -> None:
        weight = model.head_weight()
        self.dtype, self.device = weight.dtype, weight.device
        self.kv_heads = model.shape.num_key_value_heads
        self.block_tokens = block_tokens
        self._blocks = blocks
        self._layers = model.shape.num_hidden_layers
        self._row = (2 * self.kv_heads, model.shape.head_dim)
        self._data: Tensor | None = None
        self._slots: list[Tensor] = []
        self._paged: list[Tensor] = []

    @property
    def layout(self) -> str:
        """Equal layouts can exchange KV."""
        return f"{self._layers}x{self._row[0]}x{self._row[1]}:{self.dtype}"

    def drop(self) -> None:
        """Free the memory; the next use starts from zeros."""
        self._data = None
        self._slots, self._paged = [], []

    def layer_slots(self, layer: int) -> Tensor:
        """[slots, 2 * kv_heads, head_dim]."""
        self._ready()
        return self._slots[layer]

    def layer_blocks(self, layer: int) -> Tensor:
        """[blocks, block_tokens * 2 * kv_heads * head_dim]."""
        self._ready()
        return self._paged[layer]

    def slots_of(self, table: list[int], start: int, end: int) -> list[int]:
        """Slots of tokens [start, end) of a sequence."""
        size = self.block_tokens
        return [table[at // size] * size + at % size for at in range(start, end)]

    def get(self, slots: list[int]) -> Tensor:
        """A copy of some tokens' KV, [layers, tokens, 2 * kv_heads, head_dim]."""
        return self._ready().index_select(1, torch.tensor(slots, device=self.device))

    def put(self, slots: list[int], kv: Tensor) -> None:
        """Write some tokens' KV."""
        self._ready().index_copy_(1, torch.tensor(slots, device=self.device), kv.to(self.device))

    def _ready(self) -> Tensor:
        if self._data is None:
            size = (self._layers, self._blocks * self.block_tokens, *self._row)
            data = torch.zeros(size, dtype=self.dtype, device=self.device)
            self._slots = list(data.unbind())
            self._paged = [layer.view(self._blocks, -1) for layer in self._slots]
            self._data = data
        return self._data
