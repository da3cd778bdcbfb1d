"""Logits to tokens.

Invariant: the log-probability returned is the token's under the very distribution it was drawn
from: log_softmax(logits / temperature) in fp32, cut to top-k and top-p and renormalised. Greedy
(temperature 0) reports the uncut distribution at temperature 1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from opengyre.core.errors import EngineError
from opengyre.core.records import Sampling
from opengyre.engine.draws import uniform

Choice = tuple[Sampling, int]
"""How to draw one row, and the index of its token within the answer."""


def check_sampling(sampling: Sampling) -> None:
    """Raises EngineError for settings that have no distribution."""
    if not 0 <= sampling.temperature < float("inf"):
        raise EngineError(f"wanted a temperature >= 0; found {sampling.temperature}")
    if not 0 < sampling.top_p <= 1:
        raise EngineError(f"wanted top_p in (0, 1]; found {sampling.top_p}")
    if sampling.top_k < 0:
        raise EngineError(f"wanted top_k >= 0; found {sampling.top_k}")


def draw(logits: Tensor, choices: Sequence[Choice]) -> tuple[list[int], list[float]]:
    """[rows, vocab] -> one token id and its log-probability a row."""
    logp = _distributions(logits.float(), [sampling for sampling, _ in choices])
    numbers = [uniform(sampling.seed, index) for sampling, index in choices]
    cdf = logp.double().exp_().cumsum(-1)
    at = torch.tensor(numbers, dtype=torch.float64, device=cdf.device).unsqueeze(-1) * cdf[:, -1:]
    # The first entry above `at` has probability > 0; rounding could put `at` at the very end.
    ids = torch.searchsorted(cdf, at, right=True).clamp_(max=logits.shape[-1] - 1)
    greedy = [sampling.temperature == 0 for sampling, _ in choices]
    if any(greedy):
        rows = torch.tensor(greedy, device=ids.device).unsqueeze(-1)
        ids = torch.where(rows, logp.argmax(-1, keepdim=True), ids)
    return ids.squeeze(-1).tolist(), logp.gather(-1, ids).squeeze(-1).tolist()


def _distributions(logits: Tensor, samplings: list[Sampling]) -> Tensor:
    temperatures = [s.temperature or 1.0 for s in samplings]
    if any(t != 1.0 for t in temperatures):
        logits = logits / torch.tensor(temperatures, device=logits.device).unsqueeze(-1)
    logp = logits.log_softmax(-1)
    if any((s.top_k or s.top_p < 1) and s.temperature for s in samplings):
        return _cut(logp, samplings)
    return logp


def _cut(logp: Tensor, samplings: list[Sampling]) -> Tensor:
    """Keep the top_k most likely tokens, then of those the fewest that hold top_p of the mass."""
    vocab = logp.shape[-1]
    sharp = [s if s.temperature else None for s in samplings]
    top_k = torch.tensor([[s.top_k or vocab if s else vocab] for s in sharp], device=logp.device)
    top_p = torch.tensor([[s.top_p if s else 1.0] for s in sharp], device=logp.device)
    ranked, order = logp.sort(dim=-1, descending=True, stable=True)
    ranked = ranked.masked_fill(torch.arange(vocab, device=logp.device) >= top_k, -torch.inf)
    p = ranked.softmax(-1)
    # A token stays while the mass before it is short of top_p: the first always does.
    ranked = ranked.masked_fill((p.cumsum(-1) - p >= top_p) & (top_p < 1), -torch.inf)
    return torch.empty_like(logp).scatter_(-1, order, ranked.log_softmax(-1))
