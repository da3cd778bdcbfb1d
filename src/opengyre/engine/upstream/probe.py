"""Questions with known answers, asked before anything is recorded.

Invariant: a server that passes reads text into the very token ids that the proxy would send, has a
row for each of them, and tells log-probabilities of the distribution that it draws from.
"""

import math
from collections.abc import Callable
from contextlib import aclosing

from msgspec.structs import replace

from opengyre.core.errors import EngineError, UserError
from opengyre.core.records import GenerateRequest, Sampling
from opengyre.engine.upstream.base import Facts, ServerApi, UpstreamCounts

TEXT = "def f(x):\n    return x + 1234567890  # naïve 你好 🙂\n\t<|im_start|>user\r\n  Ok?"
"""Words, digits, blanks, other scripts and a special token: where vocabularies differ."""
HOT = 1e6
"""A temperature at which every distribution is flat: each token's log-probability is then minus the
logarithm of the number of rows, whatever the weights."""
FLAT = 0.05
"""Nats that a flat distribution may be off by rounding; another number of rows is more."""
SHORT = Sampling(max_new_tokens=4, stop_ids=[], seed=0)


async def check_server(
    api: ServerApi,
    facts: Facts,
    encode: Callable[[str], list[int]],
    *,
    model: str,
    rows: int,
    temperature: float,
) -> list[str]:
    """Notes on what could not be checked. Raises UserError for a server that would record lies."""
    prompt = encode(TEXT)
    notes = await _vocabulary(api, facts, prompt, model)
    if await _tells_what_it_draws_from(api, facts, prompt, model, rows):
        return notes
    if temperature not in {0.0, 1.0}:
        raise UserError(
            f"log-probabilities at temperature {temperature}",
            f"{facts.software}, which tells those at temperature 1",
            "start vLLM with --logprobs-mode processed_logprobs, SGLang without "
            "SGLANG_RETURN_ORIGINAL_LOGPROB, or record at --temperature 1",
        )
    return [*notes, "the server tells log-probabilities at temperature 1: as it samples here"]


async def _tells_what_it_draws_from(
    api: ServerApi, facts: Facts, prompt: list[int], model: str, rows: int
) -> bool:
    if api.hottest < HOT:  # the likeliest token, alone, has probability 1 or that of the whole
        alone = await _logprobs(api, prompt, replace(SHORT, top_k=1))
        return min(alone) > -FLAT
    flat = await _logprobs(api, prompt, replace(SHORT, temperature=HOT))
    if max(flat) - min(flat) >= FLAT:
        return False
    found = math.exp(-sum(flat) / len(flat))
    if abs(math.log(found / rows)) > FLAT:
        raise UserError(
            f"a server whose model has the {rows} rows of {model}",
            f"{facts.software} with {facts.model}, which has about {found:.0f}",
            "pass the folder of the served model as --model",
        )
    return True


async def _vocabulary(api: ServerApi, facts: Facts, ours: list[int], model: str) -> list[str]:
    theirs = await api.tokenize(TEXT)
    if theirs is None:
        return ["the server has no /tokenize: its vocabulary was not compared"]
    if theirs == ours:
        return []
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), -1)
    raise UserError(
        f"a server with the vocabulary of {model}",
        f"{facts.software} with {facts.model}, which reads a test text into {len(theirs)} tokens "
        f"where the folder's tokenizer makes {len(ours)} (first difference: number {at})",
        "pass the folder of the served model as --model",
    )


async def _logprobs(api: ServerApi, prompt: list[int], sampling: Sampling) -> list[float]:
    request = GenerateRequest(
        request_id="probe", execution_id="probe", prompt_ids=prompt, sampling=sampling
    )
    found: list[float] = []
    try:
        async with aclosing(api.stream(request, "probe", UpstreamCounts())) as chunks:
            async for chunk in chunks:
                found += chunk.logprobs
    except EngineError as error:
        raise UserError(
            "a server that answers a short test prompt", str(error), "mend or restart it"
        ) from error
    if not found:
        raise UserError("an answer to a short test prompt", "none", "mend or restart the server")
    return found
