"""An engine without a model: answers come from a function of the prompt. For tests and replays."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from opengyre.core.errors import EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.engine.base import EngineStats
from opengyre.engine.moving import KvHeader, receive_kv, send_kv

Script = Callable[[list[int]], list[int]]
"""The original prompt -> the whole answer; a moved call continues it at first_index."""
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
        prompt = request.prompt_ids
        answer = self._script(prompt[: len(prompt) - request.first_index])
        finish = None
        if index + 1 >= len(answer):
            finish = FinishReason.STOP
        elif index + 1 >= request.sampling.max_new_tokens:
            finish = FinishReason.LENGTH
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
