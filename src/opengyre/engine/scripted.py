"""An engine without a model: answers come from a function of the request. For tests and replays.

Invariant: token i of a request's answer is token i of what the script says to it, at whatever cell.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from opengyre.core.errors import EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, Sampling, TokenChunk
from opengyre.engine.base import EngineStats
from opengyre.engine.moving import KvHeader, receive_kv, send_kv

Script = Callable[[GenerateRequest], list[int]]
"""A request -> the whole answer, from token 0 also where a moved call goes on at first_index."""
LAYOUT = "scripted"
LOGPROB = -0.5
"""Of every token: exactly representable in every float format."""


class ScriptedEngine:
    """One token of each request a step; implements Engine."""

    def __init__(self, script: Script, version: int = 0) -> None:
        self.stats = EngineStats()
        self.loaded: list[tuple[int, dict[str, Tensor]]] = []
        self._script = script
        self._version = version
        self._requests: dict[str, tuple[GenerateRequest, int]] = {}

    @property
    def version(self) -> int:
        return self._version

    @property
    def busy(self) -> bool:
        return bool(self._requests)

    def submit(self, request: GenerateRequest, kv: Path | None = None) -> bool:
        if request.request_id in self._requests:
            raise EngineError(
                f"wanted a new request id; found {request.request_id} unfinished here"
            )
        self._requests[request.request_id] = (request, request.first_index)
        if kv is None:
            return False
        used = receive_kv(kv, self._version, LAYOUT, request.prompt_ids) is not None
        self.stats.imported += used
        self.stats.recomputed += not used
        return used

    def step(self) -> list[TokenChunk]:
        return [self._token(*entry) for entry in list(self._requests.values())]

    def cancel(self, request_id: str) -> TokenChunk | None:
        entry = self._requests.pop(request_id, None)
        if entry is None:
            return None
        return TokenChunk(
            request_id=request_id,
            token_ids=[],
            logprobs=[],
            version=self._version,
            finish=FinishReason.ABORT,
        )

    def export_kv(self, request_id: str, path: Path) -> bool:
        entry = self._requests.pop(request_id, None)
        if entry is None:
            return False
        request, _ = entry
        tokens = list(request.prompt_ids)
        header = KvHeader(version=self._version, layout=LAYOUT, token_ids=tokens)
        send_kv(path, header, torch.zeros(1, len(tokens), 1, 1))
        return True

    def load_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self.loaded.append((version, dict(tensors)))
        self._version = version

    def drop_kv(self) -> None:
        """There is none."""

    def _token(self, request: GenerateRequest, index: int) -> TokenChunk:
        answer = self._script(request)
        finish = _finish(request.sampling, answer, index)
        if finish is None:
            self._requests[request.request_id] = (request, index + 1)
        else:
            del self._requests[request.request_id]
        self.stats.decode_tokens += 1
        return TokenChunk(
            request_id=request.request_id,
            token_ids=[answer[index]],
            logprobs=[LOGPROB],
            version=self._version,
            finish=finish,
        )


def _finish(sampling: Sampling, answer: list[int], index: int) -> FinishReason | None:
    """A script that ends without a stop token, where there is one, was too long to be said."""
    if index + 1 < len(answer):
        return FinishReason.LENGTH if index + 1 >= sampling.max_new_tokens else None
    stopped = not sampling.stop_ids or answer[index] in sampling.stop_ids
    return FinishReason.STOP if stopped else FinishReason.LENGTH
