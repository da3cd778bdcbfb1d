"""A tiny random policy and the plain way to compute what an engine must give."""

from functools import cache
from typing import Any

import torch

from opengyre.core.records import GenerateRequest, Sampling
from opengyre.engine.embedded import EmbeddedEngine, EngineLimits
from opengyre.model.qwen3 import Qwen3, causal_attend
from opengyre.model.shape import Qwen3Shape

SHAPE = Qwen3Shape(
    vocab_size=23,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=128,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    tie_word_embeddings=True,
)


@cache
def weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(t.shape, generator=generator) * 0.3 + (1.0 if t.dim() == 1 else 0.0)
        for name, t in Qwen3(SHAPE).named_weights()
    }


def model(seed: int = 0) -> Qwen3:
    """Fresh: engines may load other weights into it."""
    out = Qwen3(SHAPE)
    for name, t in out.named_weights():
        t.copy_(weights(seed)[name])
    return out


@cache
def reference(seed: int) -> Qwen3:
    """Shared: never written to."""
    return model(seed)


def engine(seed: int = 0, version: int = 1, **limits: int) -> EmbeddedEngine:
    sizes = {"kv_tokens": 256, "block_tokens": 4, "max_context": 64, "prefill_tokens": 16} | limits
    return EmbeddedEngine(model(seed), version, EngineLimits(**sizes))


def request(name: str, prompt: list[int], new: int = 8, **more: Any) -> GenerateRequest:
    first = more.pop("first_index", 0)
    sampling: dict[str, Any] = {"stop_ids": list[int](), "seed": sum(name.encode())} | more
    return GenerateRequest(
        request_id=name,
        execution_id=f"e-{name}",
        prompt_ids=prompt,
        first_index=first,
        sampling=Sampling(max_new_tokens=new, **sampling),
    )


@torch.no_grad()
def full_logits(policy: Qwen3, tokens: list[int]) -> torch.Tensor:
    """[T, vocab] by one plain forward."""
    hidden = policy.hidden(torch.tensor(tokens), torch.arange(len(tokens)), causal_attend)
    return policy.logits(hidden)


def full_logprobs(policy: Qwen3, prompt: list[int], output: list[int]) -> list[float]:
    logp = full_logits(policy, prompt + output).log_softmax(-1)[len(prompt) - 1 : -1]
    chosen: list[float] = logp.gather(-1, torch.tensor(output)[:, None]).squeeze(-1).tolist()
    return chosen


class Collected:
    """What step() delivered, by request."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.logprobs: dict[str, list[float]] = {}
        self.versions: dict[str, list[int]] = {}
        self.finish: dict[str, object] = {}

    def step(self, made: EmbeddedEngine) -> None:
        for chunk in made.step():
            name = chunk.request_id
            assert name not in self.finish
            assert len(chunk.token_ids) == len(chunk.logprobs)
            self.tokens.setdefault(name, []).extend(chunk.token_ids)
            self.logprobs.setdefault(name, []).extend(chunk.logprobs)
            self.versions.setdefault(name, []).extend([chunk.version] * len(chunk.token_ids))
            if chunk.finish is not None:
                self.finish[name] = chunk.finish
        made.check()

    def drain(self, made: EmbeddedEngine) -> "Collected":
        while made.busy:
            self.step(made)
        return self
