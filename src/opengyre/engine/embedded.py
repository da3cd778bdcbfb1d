"""The embedded engine: continuous batching over a paged KV pool with a prefix cache.

Invariant: every unfinished request is either running (holding a block for each of its tokens) or
waiting (holding none), both in order of arrival; all KV in pool and cache was computed by
`version`. Losing KV (new weights, preemption, drop_kv) only ever costs time: tokens are kept and
their KV is computed again before the next token is drawn.
"""

import math
from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import torch
from torch import Tensor

from opengyre.core.errors import EngineError, TransferError, UserError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, TokenChunk
from opengyre.engine.attention import PagedAttend
from opengyre.engine.base import EngineStats
from opengyre.engine.cache import BlockCache, Key, Node
from opengyre.engine.moving import KvHeader, receive_kv, send_kv
from opengyre.engine.pool import KvPool
from opengyre.engine.sampler import check_sampling, draw
from opengyre.engine.sequence import Sequence
from opengyre.model.qwen3 import Qwen3

Work = list[tuple[int, list[Sequence]]]
"""(new tokens of each, sequences), for one step."""
_arrival = attrgetter("order")


@dataclass(frozen=True)
class EngineLimits:
    """Sizes of an embedded engine, in tokens unless said otherwise."""

    kv_tokens: int = 32768
    """Pool size."""
    block_tokens: int = 16
    max_context: int = 4096
    """Longest prompt + output."""
    max_batch: int = 64
    """Requests that run at once."""
    prefill_tokens: int = 512
    """Prompt tokens computed in a step, so that running requests are not kept waiting."""


class EmbeddedEngine:
    """Serves a Qwen3 on the caller's thread; implements Engine."""

    def __init__(self, model: Qwen3, version: int, limits: EngineLimits | None = None) -> None:
        self.limits = limits or EngineLimits()
        _check_limits(self.limits, model.shape.max_position_embeddings)
        blocks = -(-self.limits.kv_tokens // self.limits.block_tokens)
        self.model = model
        self.stats = EngineStats()
        self._version = version
        self._pool = KvPool(model, blocks, self.limits.block_tokens)
        self._cache = BlockCache(blocks, self.limits.block_tokens)
        self._requests: dict[str, Sequence] = {}
        self._running: list[Sequence] = []
        self._waiting: list[Sequence] = []
        self._arrivals = 0

    @property
    def version(self) -> int:
        return self._version

    @property
    def busy(self) -> bool:
        return bool(self._requests)

    def submit(self, request: GenerateRequest, kv: Path | None = None) -> bool:
        self._check_request(request)
        seq = Sequence(request, self._arrivals, list(request.prompt_ids))
        if kv is not None:
            seq.imported = receive_kv(kv, self._version, self._pool.layout, seq.tokens)
            if seq.imported is None:
                self.stats.recomputed += 1
            else:
                self.stats.imported += 1
        self._arrivals += 1
        self._requests[request.request_id] = seq
        self._waiting.append(seq)
        return seq.imported is not None

    @torch.inference_mode()
    def step(self) -> list[TokenChunk]:
        self._admit()
        self._grow()
        work = self._plan()
        if not work:
            return []
        attend = PagedAttend(self._pool, self.model.shape.num_attention_heads, work)
        hidden = self.model.hidden(attend.ids, attend.positions, attend)
        rows, ready = _last_rows(work)
        ids, logprobs = self._draw(hidden, rows, ready)
        self._computed(work)
        return [
            self._append(seq, token, logprob)
            for seq, token, logprob in zip(ready, ids, logprobs, strict=True)
        ]

    def cancel(self, request_id: str) -> TokenChunk | None:
        seq = self._requests.get(request_id)
        if seq is None:
            return None
        self._remove(seq)
        return TokenChunk(
            request_id=request_id,
            token_ids=[],
            logprobs=[],
            version=self._version,
            finish=FinishReason.ABORT,
        )

    def export_kv(self, request_id: str, path: Path) -> bool:
        seq = self._requests.get(request_id)
        if seq is None:
            return False
        sent = seq.computed > 0 and self._send(seq, path)
        self._remove(seq)
        return sent

    def load_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """As Engine. Raises EngineError, before any change, unless names and shapes are the model's."""
        new, own = dict(tensors), dict(self.model.named_weights())
        odd = sorted(own.keys() ^ new.keys()) or [n for n in own if own[n].shape != new[n].shape]
        if odd:
            raise EngineError(
                f"wanted the weights of this model; found missing, extra or misshapen ones: "
                f"{', '.join(odd[:3])}; publish the whole model"
            )
        with torch.no_grad():
            for name, weight in own.items():
                weight.copy_(new[name])
        self.drop_kv()
        self._version = version

    def drop_kv(self) -> None:
        for seq in list(self._running):
            self._requeue(seq)
        for seq in self._waiting:
            seq.imported = None
        self._cache.clear()
        self._pool.drop()

    def check(self) -> None:
        """Assert the invariants of engine and cache."""
        assert [s.order for s in self._running] == sorted(s.order for s in self._running)
        assert [s.order for s in self._waiting] == sorted(s.order for s in self._waiting)
        assert {*self._running, *self._waiting} == set(self._requests.values())
        assert len(self._running) + len(self._waiting) == len(self._requests)
        size = self.limits.block_tokens
        for seq in self._running:
            assert seq.computed < len(seq.tokens) <= self.limits.max_context
            assert len(seq.nodes) == seq.computed // size
            assert seq.computed <= len(seq.table) * size
            assert [n.block for n in seq.nodes] == seq.table[: len(seq.nodes)]
            assert [t for n in seq.nodes for t in n.key] == seq.tokens[: len(seq.nodes) * size]
        assert not any(s.table or s.nodes or s.computed for s in self._waiting)
        self._cache.check([(s.nodes, s.private) for s in self._running])

    def _check_request(self, request: GenerateRequest) -> None:
        prompt, sampling = request.prompt_ids, request.sampling
        if request.request_id in self._requests:
            raise EngineError(
                f"wanted a new request id; found {request.request_id} unfinished here"
            )
        if not prompt or min(prompt) < 0 or max(prompt) >= self.model.shape.vocab_size:
            raise EngineError(
                f"wanted a prompt of ids below {self.model.shape.vocab_size}; found "
                f"{f'{min(prompt)}..{max(prompt)}' if prompt else 'none'}"
            )
        if len(prompt) + 1 > self.limits.max_context:
            raise EngineError(
                f"wanted room for a token in a context of {self.limits.max_context}; found a "
                f"prompt of {len(prompt)}"
            )
        if sampling.max_new_tokens <= request.first_index:
            raise EngineError(
                f"wanted max_new_tokens above {request.first_index}, which are there already; "
                f"found {sampling.max_new_tokens}"
            )
        check_sampling(sampling)

    def _admit(self) -> None:
        """Let waiting requests run, oldest first, while blocks last."""
        if not self._waiting:
            return
        coming = {self._next_block(s.nodes, s) for s in self._running}
        for seq in list(self._waiting):
            if len(self._running) >= self.limits.max_batch:
                return
            nodes = self._cache.match(seq.tokens)
            following = self._next_block(nodes, seq)
            if following is not None and following in coming and seq.imported is None:
                continue  # a running request computes this very block now: wait and share it
            if not self._start(seq, nodes):
                return
            coming.add(self._next_block(seq.nodes, seq))

    def _next_block(self, nodes: list[Node], seq: Sequence) -> tuple[int, Key] | None:
        """The full block that a request computes next, as (parent, tokens); None when decoding."""
        key = self._cache.key(seq.tokens, len(nodes))
        if len(key) < self.limits.block_tokens:
            return None
        return id(nodes[-1] if nodes else self._cache.root), key

    def _start(self, seq: Sequence, nodes: list[Node]) -> bool:
        """Give a waiting request its blocks; False when there are too few."""
        need = -(-len(seq.tokens) // self.limits.block_tokens) - len(nodes)
        self._cache.hold(nodes)
        # Each running request may soon want a block more: without a reserve, admission and
        # preemption would take turns.
        room = self._cache.available >= need + len(self._running)
        blocks = self._cache.allocate(need) if room else None
        if blocks is None:
            self._cache.release(nodes, [])
            return False
        seq.nodes = nodes
        seq.table = [node.block for node in nodes] + blocks
        seq.computed = len(nodes) * self.limits.block_tokens
        self.stats.prefix_hit_tokens += seq.computed
        self._waiting.remove(seq)
        insort(self._running, seq, key=_arrival)
        if seq.imported is not None:
            self._import(seq, seq.imported)
        return True

    def _import(self, seq: Sequence, kv: Tensor) -> None:
        seq.imported = None
        if kv.shape[1] <= seq.computed:
            return
        self._pool.put(seq.table, seq.computed, kv[:, seq.computed :])
        seq.computed = kv.shape[1]
        self._remember(seq)

    def _grow(self) -> None:
        """A block for each new token, at the cost of the youngest requests."""
        for seq in list(self._running):
            while seq.table and len(seq.tokens) > len(seq.table) * self.limits.block_tokens:
                blocks = self._cache.allocate(1)
                if blocks is not None:
                    seq.table += blocks
                    continue
                self.stats.preemptions += 1
                self._requeue(self._running[-1])
        self.stats.evictions = self._cache.evictions

    def _plan(self) -> Work:
        """One token of each decoding request and a bounded piece of the prompts."""
        groups: dict[int, list[Sequence]] = {}
        budget = self.limits.prefill_tokens
        for seq in self._running:
            new = len(seq.tokens) - seq.computed
            if new > 1 or seq.length == seq.request.first_index:
                new = min(new, budget)
                budget -= new
                self.stats.prefill_tokens += new
            if new:
                groups.setdefault(new, []).append(seq)
        return list(groups.items())

    def _draw(
        self, hidden: Tensor, rows: list[int], ready: list[Sequence]
    ) -> tuple[list[int], list[float]]:
        if not ready:
            return [], []
        if len(rows) < len(hidden):
            hidden = hidden[torch.tensor(rows, device=hidden.device)]
        logits = self.model.logits(hidden)
        ids, logprobs = draw(logits, [(s.request.sampling, s.length) for s in ready])
        if not all(map(math.isfinite, logprobs)):
            raise EngineError(
                f"wanted finite log-probabilities; weights of version {self._version} gave "
                f"others; load an earlier version"
            )
        return ids, logprobs

    def _computed(self, work: Work) -> None:
        for new, sequences in work:
            for seq in sequences:
                seq.computed += new
                self._remember(seq)

    def _remember(self, seq: Sequence) -> None:
        """Put full blocks into the prefix cache at once: others may be waiting for them."""
        while len(seq.nodes) < seq.computed // self.limits.block_tokens:
            index = len(seq.nodes)
            parent = seq.nodes[-1] if seq.nodes else self._cache.root
            node = self._cache.remember(
                parent, self._cache.key(seq.tokens, index), seq.table[index]
            )
            seq.table[index] = node.block
            seq.nodes.append(node)

    def _append(self, seq: Sequence, token: int, logprob: float) -> TokenChunk:
        seq.tokens.append(token)
        self.stats.decode_tokens += 1
        finish = seq.finish(self.limits.max_context)
        if finish is not None:
            self._remove(seq)
        return TokenChunk(
            request_id=seq.request.request_id,
            token_ids=[token],
            logprobs=[logprob],
            version=self._version,
            finish=finish,
        )

    def _requeue(self, seq: Sequence) -> None:
        """Take a running request's KV away."""
        self._running.remove(seq)
        self._cache.release(seq.nodes, seq.private)
        seq.forget()
        insort(self._waiting, seq, key=_arrival)

    def _remove(self, seq: Sequence) -> None:
        if seq.table:
            self._requeue(seq)
        self._waiting.remove(seq)
        del self._requests[seq.request.request_id]

    def _send(self, seq: Sequence, path: Path) -> bool:
        header = KvHeader(
            version=self._version,
            layout=self._pool.layout,
            token_ids=seq.tokens[: seq.computed],
        )
        kv = self._pool.take(seq.table, seq.computed)
        try:
            send_kv(path, header, kv)
        except TransferError:
            self.stats.export_failures += 1  # the call recomputes at its next cell
            return False
        return True


def _last_rows(work: Work) -> tuple[list[int], list[Sequence]]:
    """Rows of the flat batch that give a token, and whose they are."""
    rows: list[int] = []
    ready: list[Sequence] = []
    row = -1
    for new, sequences in work:
        for seq in sequences:
            row += new
            if seq.computed + new == len(seq.tokens):
                rows.append(row)
                ready.append(seq)
    return rows, ready


def _check_limits(limits: EngineLimits, positions: int) -> None:
    if limits.max_context > positions:
        raise UserError(
            f"a context of {limits.max_context} tokens",
            f"a model of {positions} positions",
            f"set policy.context_tokens to at most {positions}",
        )
    if limits.kv_tokens < limits.max_context:
        raise UserError(
            f"KV memory for a context of {limits.max_context} tokens",
            f"cells.kv_tokens = {limits.kv_tokens}",
            f"set cells.kv_tokens to at least {limits.max_context}",
        )
    if (
        min(limits.block_tokens, limits.max_batch, limits.prefill_tokens, limits.max_context - 1)
        < 1
    ):
        raise UserError("sizes of at least 1 (a context of 2)", str(limits), "raise the smallest")
