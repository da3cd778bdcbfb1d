"""What moving a call costs: its KV cache goes along, or the next cell computes it again.

Invariant: both ways start from the same tokens on the same two engines, and both must draw the same
next token. Ways are timed in turns, and the best turn of each counts: what else the machine does only
ever adds time.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opengyre.core.errors import UserError
from opengyre.core.protocols import Clock
from opengyre.core.records import GenerateRequest, Sampling
from opengyre.engine.base import Engine
from opengyre.engine.embedded import EmbeddedEngine, EngineLimits
from opengyre.model.qwen3 import Qwen3

VERSION = 1
SPARE = 16
"""Tokens of a context beyond the longest prompt."""


@dataclass(frozen=True)
class Move:
    """Of calls with one length of context; seconds from leaving one engine to the next one's token."""

    tokens: int
    with_kv_s: float
    recomputed_s: float
    kv_bytes: int
    same_token: bool
    """Whether both ways drew the same next token in every turn."""

    @property
    def ratio(self) -> float:
        """Recomputing over moving: above 1, moving the KV cache is faster."""
        return self.recomputed_s / self.with_kv_s

    def as_json(self) -> dict[str, object]:
        """As --json writes it."""
        return {
            "context_tokens": self.tokens,
            "with_kv_s": self.with_kv_s,
            "recomputed_s": self.recomputed_s,
            "recomputed_over_moved": self.ratio,
            "kv_bytes": self.kv_bytes,
            "same_token": self.same_token,
        }


def break_even(moves: list[Move]) -> int | None:
    """The shortest context from which on moving is faster in every measured one."""
    shortest = None
    for move in sorted(moves, key=lambda one: -one.tokens):
        if move.ratio <= 1.0:
            break
        shortest = move.tokens
    return shortest


class Mover:
    """Two engines with the same model, as two cells have, and a folder in shared memory."""

    def __init__(self, model: Qwen3, longest: int, folder: Path, clock: Clock, seed: int) -> None:
        context = longest + SPARE
        limits = EngineLimits(kv_tokens=4 * context, max_context=context)
        self._here: Engine = EmbeddedEngine(model, VERSION, limits)
        self._there: Engine = EmbeddedEngine(model, VERSION, limits)
        self._words = model.shape.vocab_size
        self._blob = folder / "kv"
        self._clock = clock
        self._draw = random.Random(seed)
        self._calls = 0

    def time_moves(
        self, lengths: list[int], repeats: int, tell: Callable[[Move], None]
    ) -> list[Move]:
        """The best turn of each way, the shortest context first; tell hears of each length."""
        moves = []
        for tokens in sorted(set(lengths)):
            turns = [self._turn(tokens) for _ in range(repeats)]
            moves.append(
                Move(
                    tokens,
                    min(turn.with_kv_s for turn in turns),
                    min(turn.recomputed_s for turn in turns),
                    turns[0].kv_bytes,
                    all(turn.same_token for turn in turns),
                )
            )
            tell(moves[-1])
        return moves

    def _turn(self, tokens: int) -> Move:
        prompt = [self._draw.randrange(self._words) for _ in range(tokens)]
        self._forget()
        moved_s, moved, size = self._move(prompt, with_kv=True)
        self._forget()
        again_s, again, _ = self._move(prompt, with_kv=False)
        return Move(tokens, moved_s, again_s, size, moved == again)

    def _forget(self) -> None:
        """Empty both prefix caches, which know the prompt; then touch the pools, as cells that serve have."""
        for engine in (self._here, self._there):
            engine.drop_kv()
            engine.submit(_request("first", [0]))
            _next_token(engine)
            engine.cancel("first")

    def _move(self, prompt: list[int], *, with_kv: bool) -> tuple[float, int, int]:
        """(seconds, the token drawn after the move, bytes that moved)."""
        self._calls += 1
        name = f"call-{self._calls}"
        self._here.submit(_request(name, prompt))
        first = _next_token(self._here)
        request = _request(name, [*prompt, first], drawn=1)
        began = self._clock.now()
        if with_kv:
            if not self._here.export_kv(name, self._blob):
                wanted = f"room in {self._blob.parent} for the KV cache of {len(prompt)} tokens"
                raise UserError(wanted, "too little", "free some, or ask for a shorter --context")
            assert self._there.submit(request, self._blob), "the KV cache was not taken"
        else:
            self._here.cancel(name)
            self._there.submit(request)
        token = _next_token(self._there)
        seconds = self._clock.now() - began
        self._there.cancel(name)
        size = self._blob.stat().st_size if with_kv else 0
        self._blob.unlink(missing_ok=True)
        return seconds, token, size


def _request(name: str, prompt: list[int], drawn: int = 0) -> GenerateRequest:
    sampling = Sampling(max_new_tokens=SPARE // 2, stop_ids=[], seed=0)
    return GenerateRequest(
        request_id=name,
        execution_id=name,
        prompt_ids=prompt,
        sampling=sampling,
        first_index=drawn,
    )


def _next_token(engine: Engine) -> int:
    while True:
        for chunk in engine.step():
            return chunk.token_ids[0]
