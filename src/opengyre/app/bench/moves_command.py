"""What `opengyre bench kv` does: time moves of calls, print, and write JSON if asked."""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from opengyre.app.bench.moves import SPARE, Move, Mover, break_even
from opengyre.app.bench.small import small_qwen3
from opengyre.app.machine import machine
from opengyre.app.results import write_json
from opengyre.app.wall import WallClock
from opengyre.core.errors import UserError
from opengyre.learner.policy import new_policy
from opengyre.model.folder import load_model
from opengyre.model.qwen3 import Qwen3
from opengyre.transfer.folder import ShmDir

HIDDEN, LAYERS, WORDS = 192, 4, 1024
"""Of the random model: that of `opengyre bench policies`, with more tokens to tell apart."""
KILOBYTE = 1024


def run_kv(
    model: Path | None, lengths: list[int], repeats: int, seed: int, json: Path | None
) -> None:
    """Time the moves, the shortest first."""
    console = Console()
    torch.set_num_threads(1)
    with TemporaryDirectory(prefix="opengyre-") as scratch, ShmDir.for_run(Path(scratch)) as shared:
        policy, words = _model(model, max(lengths), seed, Path(scratch))
        console.print(f"{words}; one thread", highlight=False)
        mover = Mover(policy, max(lengths), shared.path, WallClock(), seed)
        moves = mover.time_moves(lengths, repeats, lambda move: _tell(console, move))
    console.print(moves_table(moves))
    console.print(break_even_words(moves), highlight=False, soft_wrap=True)
    if json is not None:
        write_json(moves_json(moves, words), json)


def _tell(console: Console, move: Move) -> None:
    console.print(f"{move.tokens:,} tokens: {move.ratio:.2f}", highlight=False)


def moves_table(moves: list[Move]) -> Table:
    """A line a length of context."""
    table = Table(title="From leaving a cell to the next token", box=SIMPLE_HEAD)
    headings = ("context", "with KV, ms", "recomputed, ms", "recomputed over moved", "KV, kB")
    for heading in headings:
        table.add_column(heading, justify="right")
    for move in moves:
        table.add_row(
            f"{move.tokens:,}",
            f"{move.with_kv_s * 1e3:.2f}",
            f"{move.recomputed_s * 1e3:.2f}",
            f"{move.ratio:.2f}",
            f"{move.kv_bytes / KILOBYTE:,.0f}",
        )
    return table


def break_even_words(moves: list[Move]) -> str:
    """From which context on moving pays, and whether both ways drew the same tokens."""
    shortest = break_even(moves)
    odd = sum(not move.same_token for move in moves)
    same = f"different next tokens at {odd} lengths" if odd else "the same next token both ways"
    if shortest is None:
        return f"moving the KV cache is not faster at {moves[-1].tokens:,} tokens; {same}"
    return f"moving the KV cache is faster from {shortest:,} tokens on; {same}"


def moves_json(moves: list[Move], model: str) -> dict[str, object]:
    """All figures."""
    return {
        "bench": "kv",
        "model": model,
        "moves": [move.as_json() for move in moves],
        "break_even_tokens": break_even(moves),
        "machine": machine(),
    }


def _model(folder: Path | None, longest: int, seed: int, scratch: Path) -> tuple[Qwen3, str]:
    """A policy and what it is. Raises UserError for one with too few positions."""
    if folder is not None:
        model = load_model(folder)
        room = model.shape.max_position_embeddings - SPARE
        if longest > room:
            raise UserError(f"contexts of at most {room} tokens", f"{longest}", "leave it out")
        return model, f"the model in {folder}"
    sizes = small_qwen3(HIDDEN, LAYERS, longest + SPARE, WORDS)
    words = f"a random Qwen3: {LAYERS} layers of {HIDDEN}"
    return new_policy(sizes, seed, scratch / "model"), words
