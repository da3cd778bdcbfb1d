"""Dense Qwen3 with the attention passed in.

Engine (paged KV) and learner (prefix trees) run the same weights and differ in attention alone, so
the model takes an `Attend` function. Parameter names equal transformers' Qwen3ForCausalLM, so that
folders load and save without renaming. Norms and rotary embedding are computed in fp32 or wider.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from opengyre.model.shape import Qwen3Shape

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q [T, heads, d], k [T, kv_heads, d], v [T, kv_heads, d]) -> [T, heads, d]; q and k rotated."""


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, in fp32 or wider."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        h = _wide(x)
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(x.dtype)


class Attention(nn.Module):
    """Projections, per-head norms and rotation; the attention itself is the caller's."""

    def __init__(self, shape: Qwen3Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        q_size = shape.num_attention_heads * shape.head_dim
        kv_size = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, q_size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, shape.hidden_size, bias=False)
        self.q_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)
        self.k_norm = RMSNorm(shape.head_dim, shape.rms_norm_eps)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], layer: int, attend: Attend) -> Tensor:
        split = (*x.shape[:-1], -1, self.head_dim)
        q = _rotate(self.q_norm(self.q_proj(x).view(split)), rope)
        k = _rotate(self.k_norm(self.k_proj(x).view(split)), rope)
        v = self.v_proj(x).view(split)
        out: Tensor = self.o_proj(attend(layer, q, k, v).reshape(*x.shape[:-1], -1))
        return out


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Qwen3Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, shape: Qwen3Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = MLP(shape)
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], layer: int, attend: Attend) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, layer, attend)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Trunk(nn.Module):
    """Embedding, layers and the last norm (transformers' `model.` prefix)."""

    def __init__(self, shape: Qwen3Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.num_hidden_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Qwen3(nn.Module):
    """ids and positions in, hidden states or logits out."""

    def __init__(self, shape: Qwen3Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        if not shape.tie_word_embeddings:
            self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64)
        frequency = shape.rope_theta ** (-half / shape.head_dim)
        angle = (
            torch.arange(shape.max_position_embeddings, dtype=torch.float64)[:, None] * frequency
        )
        angle = torch.cat((angle, angle), dim=-1)
        self.register_buffer("rope_cos", angle.cos().float(), persistent=False)
        self.register_buffer("rope_sin", angle.sin().float(), persistent=False)

    def hidden(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """[T] ids and positions (int64) -> [T, hidden] after the last norm."""
        cos, sin = self.get_buffer("rope_cos"), self.get_buffer("rope_sin")
        rope = (cos[positions].unsqueeze(-2), sin[positions].unsqueeze(-2))
        x: Tensor = self.model.embed_tokens(ids)
        for layer, block in enumerate(self.model.layers):
            x = block(x, rope, layer, attend)
        out: Tensor = self.model.norm(x)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., hidden] -> [..., vocab]."""
        return nn.functional.linear(hidden, self.head_weight())

    def head_weight(self) -> Tensor:
        """The output matrix [vocab, hidden], tied or not."""
        if self.shape.tie_word_embeddings:
            return self.model.embed_tokens.weight
        return self.lm_head.weight

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters under transformers' names, each once, in a fixed order."""
        return ((name, p.data) for name, p in self.named_parameters())


def causal_attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Plain causal attention over one sequence [T, heads, d]: the reference for every other one."""
    out = nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1), is_causal=True, enable_gqa=True
    )
    return out.transpose(0, 1)


def _rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rope
    wide = _wide(x)
    left, right = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-right, left), dim=-1) * sin).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """At least fp32: where rounding would add up, half precision does not do."""
    return x if x.dtype == torch.float64 else x.float()
