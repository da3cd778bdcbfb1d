"""SGLang and vLLM in miniature: real HTTP, answers of the shape that the real servers were seen to give.

Invariant: the next token and its log-probability depend on the tokens before it alone, so that an
answer that was cut and went on can be compared with one that was not.
"""

import asyncio
import json
import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

HOT = 100.0
"""Temperatures from here are flat."""
Script = Callable[[Sequence[int]], int]
"""All tokens so far, the prompt included -> the next one."""


def counting(rows: int) -> Script:
    """Every token follows from those before it, and none is special to anybody."""
    return lambda tokens: 3 + (7 * tokens[-1] + len(tokens)) % (rows - 3)


def logprob_of(token: int) -> float:
    """What the fakes say of a token."""
    return -0.25 * (1 + token % 7)


@dataclass
class Fault:
    """What one generation suffers."""

    status: int = 200
    """Answer with this one at once, if it is not 200."""
    cut_after: int | None = None
    """Events after which the connection breaks."""
    stuck_after: int | None = None
    """Events after which nothing comes any more."""
    failed_after: int | None = None
    """Events after which the server says that it failed."""


@dataclass
class FakeServer(ABC):
    """Start it, break it, and see what it was asked."""

    rows: int = 650
    script: Script | None = None
    encode: Callable[[str], list[int]] = lambda text: [3 + ord(c) % 600 for c in text]
    model: str = "the-model"
    context_tokens: int = 4096
    tokens_an_event: int = 8
    faults: "deque[Fault]" = field(default_factory=deque)
    """One for each generation, from the left; then none."""
    versions: list[tuple[int, str]] = field(default_factory=lambda: [(0, "default")])
    """(first output token, label)."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of generations."""
    aborted: list[str] = field(default_factory=list)
    """Names of attempts that were aborted, or whose reader left."""
    url: str = ""
    _runner: web.AppRunner | None = None
    _port: int = 0

    async def start(self) -> None:
        """On the same port again after a stop."""
        app = web.Application(client_max_size=64 << 20)
        app.add_routes([*self._routes(), web.post("/tokenize", self._tokenize)])
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Idempotent; open answers are cut."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @abstractmethod
    def _routes(self) -> list[web.RouteDef]: ...

    async def _tokenize(self, request: web.Request) -> web.Response:
        ids = self.encode((await request.json())["prompt"])
        return web.json_response(
            {"tokens": ids, "count": len(ids), "max_model_len": self.context_tokens}
        )

    def _answer(
        self, prompt: list[int], limit: int, stop_ids: list[int], temperature: float
    ) -> list[tuple[int, float]]:
        script, tokens = self.script or counting(self.rows), list(prompt)
        answer: list[tuple[int, float]] = []
        while len(answer) < limit and not (answer and answer[-1][0] in stop_ids):
            token = script(tokens)
            tokens.append(token)
            flat = temperature >= HOT
            answer.append((token, -math.log(self.rows) if flat else logprob_of(token)))
        return answer

    def _label(self, index: int) -> str:
        return [label for first, label in self.versions if first <= index][-1]

    async def _stream(
        self, request: web.Request, name: str, events: Iterator[dict[str, Any]]
    ) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else Fault()
        if fault.status != 200:
            return web.json_response({"error": {"message": "as told"}}, status=fault.status)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        try:
            for number, event in enumerate(events):
                if number == fault.stuck_after:
                    await asyncio.Event().wait()
                if number == fault.failed_after:
                    event = {"error": {"message": "out of memory", "code": 500}}  # noqa: PLW2901
                if number == fault.cut_after:
                    assert request.transport is not None
                    request.transport.abort()
                    return response
                await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                await asyncio.sleep(0)  # noqa: TID251 — gives way, does not wait
            await response.write(b"data: [DONE]\n\n")
        except (asyncio.CancelledError, ConnectionError):
            self.aborted.append(name)
            raise
        return response


@dataclass
class FakeSGLang(FakeServer):
    """As SGLang 0.5.23: events repeat the whole answer; only the last one has weight_versions."""

    incremental: bool = False
    """As under --incremental-streaming-output."""

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/model_info", self._model_info),
            web.get("/server_info", self._server_info),
            web.post("/generate", self._generate),
            web.post("/abort_request", self._abort),
        ]

    async def _model_info(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "model_path": self.model,
                "tokenizer_path": self.model,
                "is_generation": True,
                "weight_version": self._label(10**9),
                "model_type": "qwen3",
                "architectures": ["Qwen3ForCausalLM"],
            }
        )

    async def _server_info(self, _request: web.Request) -> web.Response:
        return web.json_response(
            {
                "version": "0.5.23",
                "context_length": self.context_tokens,
                "max_total_num_tokens": 4 * self.context_tokens,
                "max_req_input_len": self.context_tokens - 6,
            }
        )

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        return web.Response()

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        sampling = body["sampling_params"]
        stops, limit = sampling["stop_token_ids"], sampling["max_new_tokens"]
        answer = self._answer(body["input_ids"], limit, stops, sampling["temperature"])
        return await self._stream(request, body["rid"], self._events(body, answer, stops))

    def _events(
        self, body: dict[str, Any], answer: list[tuple[int, float]], stops: list[int]
    ) -> Iterator[dict[str, Any]]:
        if len(body["input_ids"]) >= self.context_tokens:
            message = f"The input ({len(body['input_ids'])} tokens) is longer than the model's"
            yield {"error": {"message": message, "type": "BadRequestError", "code": 400}}
            return
        ends = [*range(1, len(answer), self.tokens_an_event), len(answer)]
        told = 0
        for end in ends:
            meta = self._meta(body, answer[:end])
            shown = answer[told:end] if self.incremental else answer[:end]
            meta["output_token_logprobs"] = [[logprob, token, None] for token, logprob in shown]
            if end == len(answer):
                stopped = bool(answer) and answer[-1][0] in stops
                meta["finish_reason"] = (
                    {"type": "stop", "matched": answer[-1][0]}
                    if stopped
                    else {"type": "length", "length": len(answer)}
                )
                meta["weight_versions"] = self._spans(len(answer))
            yield {"text": "", "output_ids": [token for token, _ in shown], "meta_info": meta}
            told = end

    def _meta(self, body: dict[str, Any], answer: list[tuple[int, float]]) -> dict[str, Any]:
        return {
            "id": body["rid"],
            "finish_reason": None,
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": len(answer),
            "cached_tokens": len(body["input_ids"]) // 2,
            "weight_version": self._label(len(answer) - 1),
        }

    def _spans(self, length: int) -> list[dict[str, Any]]:
        firsts = [first for first, _ in self.versions if first < length] + [length]
        labels = [label for first, label in self.versions if first < length]
        return [
            {"version": label, "start": start, "end": end}
            for label, start, end in zip(labels, firsts, firsts[1:], strict=False)
        ]


@dataclass
class FakeVllm(FakeServer):
    """As vLLM 0.32.0: events hold what is new; the prompt's ids are in the first one."""

    processed_logprobs: bool = False
    """As under --logprobs-mode processed_logprobs."""

    def _routes(self) -> list[web.RouteDef]:
        return [
            web.get("/version", self._version),
            web.get("/v1/models", self._models),
            web.post("/v1/completions", self._complete),
        ]

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": "0.32.0"})

    async def _models(self, _request: web.Request) -> web.Response:
        model = {
            "id": self.model,
            "object": "model",
            "owned_by": "vllm",
            "root": self.model,
            "max_model_len": self.context_tokens,
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        if not 0 <= body["temperature"] <= 2:
            message = f"temperature must be in [0, 2], got {body['temperature']}."
            return web.json_response({"error": {"message": message, "code": 400}}, status=400)
        if len(body["prompt"]) >= self.context_tokens:
            message = f"This model's maximum context length is {self.context_tokens} tokens."
            return web.json_response({"error": {"message": message, "code": 400}}, status=400)
        answer = self._answer(
            body["prompt"], body["max_tokens"], body["stop_token_ids"], body["temperature"]
        )
        if body["top_k"] == 1 and self.processed_logprobs:
            answer = [(token, 0.0) for token, _ in answer]
        return await self._stream(request, body["request_id"], self._events(body, answer))

    def _events(
        self, body: dict[str, Any], answer: list[tuple[int, float]]
    ) -> Iterator[dict[str, Any]]:
        stops = body["stop_token_ids"]
        for number, (token, logprob) in enumerate(answer):
            last = number == len(answer) - 1
            finish = ("stop" if token in stops else "length") if last else None
            choice = {
                "index": 0,
                "text": "",
                "logprobs": {"token_logprobs": [logprob], "tokens": [""]},
                "finish_reason": finish,
                "prompt_token_ids": None if number else body["prompt"],
                "token_ids": [token],
            }
            yield {"id": f"cmpl-{body['request_id']}", "choices": [choice]}
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(answer)}
        yield {"choices": [], "usage": usage}
