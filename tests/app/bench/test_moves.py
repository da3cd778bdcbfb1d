"""The bench of moved calls: real engines, the same tokens both ways, and the break-even."""

import json
from pathlib import Path

import pytest

from opengyre.app.bench.moves import Move, Mover, break_even
from opengyre.app.bench.moves_command import break_even_words, run_kv
from opengyre.app.bench.small import small_qwen3
from opengyre.core.errors import UserError
from opengyre.core.fakes import FakeClock
from opengyre.learner.policy import new_policy


def move(tokens: int, ratio: float, *, same_token: bool = True) -> Move:
    return Move(tokens, 1.0, ratio, 1, same_token)


@pytest.mark.parametrize(
    ("ratios", "tokens"),
    [
        ((0.5, 0.9, 1.1, 3.0), 3),
        ((1.2, 0.9, 1.1, 3.0), 3),
        ((1.2, 1.3), 1),
        ((0.5, 1.0), None),
    ],
)
def test_the_break_even_is_the_context_from_which_on_every_move_pays(
    ratios: tuple[float, ...], tokens: int | None
) -> None:
    moves = [move(number, ratio) for number, ratio in enumerate(ratios, 1)]
    assert break_even(moves) == tokens
    assert ("not faster" in break_even_words(moves)) is (tokens is None)


def test_other_tokens_after_a_move_are_shown() -> None:
    words = break_even_words([move(4, 2.0), move(8, 3.0, same_token=False)])
    assert "different next tokens at 1 lengths" in words


def test_both_ways_draw_the_same_token_and_a_longer_context_moves_more(tmp_path: Path) -> None:
    run_kv(None, [70, 20], 2, 3, tmp_path / "kv.json")
    short, long = json.loads((tmp_path / "kv.json").read_text())["moves"]
    assert (short["context_tokens"], long["context_tokens"]) == (20, 70)
    assert short["same_token"]
    assert long["same_token"]
    assert 0 < short["kv_bytes"] < long["kv_bytes"]
    assert min(short["with_kv_s"], long["recomputed_s"]) > 0


def test_a_model_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="dense Qwen3"):
        run_kv(tmp_path, [16], 1, 0, None)


def test_no_room_for_the_cache_is_said(tmp_path: Path) -> None:
    sizes = small_qwen3(64, 1, 64, 32)
    model = new_policy(sizes, 0, tmp_path / "model")
    mover = Mover(model, 20, tmp_path / "nowhere", FakeClock(), 0)
    with pytest.raises(UserError, match=r"nowhere for the KV cache of 20 tokens"):
        mover.time_moves([20], 1, lambda _move: None)
