"""Log-probabilities of target tokens, with logits only where a target needs them.

At most LOGIT_FLOATS logits exist at a time: a larger set of targets is taken in chunks whose logits
are computed again in the backward pass.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from opengyre.model.qwen3 import Qwen3

LOGIT_FLOATS = 2**26
"""256 MiB of fp32 logits: room for 440 targets of a 152k vocabulary or 100k of a tiny one."""


def target_logprobs(
    model: Qwen3, hidden: Tensor, tokens: Tensor, temperature: float, floats: int = LOGIT_FLOATS
) -> Tensor:
    """hidden [M, hidden] at the targets' parents, tokens [M] -> [M] natural logs, fp32 or wider.

    Of the distribution softmax(logits / temperature), as the engine records it.
    """

    def chunk(h: Tensor, t: Tensor) -> Tensor:
        logits = model.logits(h)
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return -cross_entropy(wide / temperature, t, reduction="none")

    rows = max(1, floats // model.shape.vocab_size)
    if len(tokens) <= rows:
        return chunk(hidden, tokens)
    pairs = zip(torch.split(hidden, rows), torch.split(tokens, rows), strict=True)
    return torch.cat([checkpoint(chunk, h, t, use_reentrant=False) for h, t in pairs])
