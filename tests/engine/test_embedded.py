"""The embedded engine gives what a plain full forward gives, whatever happens on the way."""

from typing import Any

import pytest
import torch

from opengyre.core.errors import EngineError, UserError
from opengyre.core.reasons import FinishReason
from opengyre.engine.draws import uniform
from opengyre.engine.embedded import EmbeddedEngine, EngineLimits
from opengyre.model.qwen3 import Qwen3
from opengyre.model.shape import Qwen3Shape
from tests.engine.tiny import (
    Collected,
    engine,
    full_logits,
    full_logprobs,
    model,
    reference,
    request,
    weights,
)

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4]


def exact(collected: Collected, name: str, prompt: list[int]) -> None:
    want = full_logprobs(reference(0), prompt, collected.tokens[name])
    assert collected.logprobs[name] == pytest.approx(want, abs=1e-5)


def plain_draws(prompt: list[int], new: int, seed: int) -> list[int]:
    """Inverse-CDF sampling, one full forward a token."""
    tokens = list(prompt)
    for index in range(new):
        cdf = full_logits(reference(0), tokens)[-1].log_softmax(-1).double().exp().cumsum(-1)
        at = uniform(seed, index) * float(cdf[-1])
        tokens.append(int((cdf > at).nonzero()[0]))
    return tokens[len(prompt) :]


def test_tokens_and_logprobs_are_those_of_full_forwards():
    got = Collected()
    made = engine()
    made.submit(request("a", PROMPT, new=12, seed=7))
    got.drain(made)
    assert got.tokens["a"] == plain_draws(PROMPT, 12, 7)
    exact(got, "a", PROMPT)
    assert got.finish["a"] is FinishReason.LENGTH


@pytest.mark.parametrize("prefill", [1, 3, 7, 64])
def test_chunks_batches_and_shared_prefixes_change_nothing(prefill):
    prompts = {f"r{i}": PROMPT[: 20 - i % 5] + [i] * (i % 4) for i in range(9)}
    made, got = engine(prefill_tokens=prefill, max_batch=5), Collected()
    for i, (name, prompt) in enumerate(prompts.items()):
        made.submit(request(name, prompt, new=3 + i))
        got.step(made)
    got.drain(made)
    for i, (name, prompt) in enumerate(prompts.items()):
        assert got.tokens[name] == plain_draws(prompt, 3 + i, sum(name.encode()))
        exact(got, name, prompt)
    assert made.stats.prefix_hit_tokens > 0


def test_equal_prompts_are_computed_once():
    made, got = engine(prefill_tokens=8), Collected()
    for i in range(4):
        made.submit(request(f"r{i}", PROMPT, new=2))
    got.drain(made)
    blocks = (len(PROMPT) - 1) // 4 * 4
    assert made.stats.prefill_tokens == len(PROMPT) + 3 * (len(PROMPT) - blocks)
    for i in range(4):
        exact(got, f"r{i}", PROMPT)


def test_the_next_turn_finds_the_answer_before_it():
    made, got = engine(), Collected()
    made.submit(request("a", PROMPT, new=9))
    got.drain(made)
    turn = PROMPT + got.tokens["a"] + [1, 2, 3]
    made.submit(request("b", turn, new=4))
    got.drain(made)
    assert made.stats.prefix_hit_tokens == 28  # 20 + 9 tokens, the last one never computed
    exact(got, "b", turn)


def test_a_full_pool_preempts_the_youngest_and_loses_no_token():
    made, got = engine(kv_tokens=64, max_context=64), Collected()
    for i in range(4):
        made.submit(request(f"r{i}", [i, *PROMPT[:8]], new=40))
    got.drain(made)
    assert made.stats.preemptions > 0
    for i in range(4):
        assert got.tokens[f"r{i}"] == plain_draws([i, *PROMPT[:8]], 40, sum(f"r{i}".encode()))
        exact(got, f"r{i}", [i, *PROMPT[:8]])
    finished = list(got.finish)
    assert finished[0] == "r0"


def test_a_moved_call_draws_the_same_tokens(tmp_path):
    one, two, unmoved, got = engine(), engine(), Collected(), Collected()
    made = engine()
    made.submit(request("a", PROMPT, new=16))
    unmoved.drain(made)
    one.submit(request("a", PROMPT, new=16))
    for _ in range(9):
        got.step(one)
    assert one.export_kv("a", tmp_path / "kv")
    assert not one.busy
    one.check()
    sent = got.tokens["a"]
    two.submit(request("other", PROMPT[:3], new=2))
    again = request("a", PROMPT + sent, new=16, first_index=len(sent))
    assert two.submit(again, tmp_path / "kv")
    (tmp_path / "kv").unlink()
    got.drain(two)
    assert got.tokens["a"] == unmoved.tokens["a"]
    assert got.logprobs["a"] == pytest.approx(unmoved.logprobs["a"], abs=1e-5)
    assert got.finish["a"] is FinishReason.LENGTH
    assert (two.stats.imported, two.stats.recomputed) == (1, 0)
    assert two.stats.prefill_tokens == 3 + 1  # the other's prompt and the moved call's last token


def test_kv_of_another_version_or_prompt_is_recomputed(tmp_path):
    one = engine()
    one.submit(request("a", PROMPT, new=16))
    for _ in range(4):
        one.step()
    assert one.export_kv("a", tmp_path / "kv")
    newer, got = engine(version=2), Collected()
    assert not newer.submit(request("a", PROMPT, new=5), tmp_path / "kv")
    assert not newer.submit(request("b", PROMPT, new=5), tmp_path / "absent")
    other = engine()
    assert not other.submit(request("c", [9, *PROMPT], new=5), tmp_path / "kv")
    got.drain(newer)
    got.drain(other)
    assert (newer.stats.recomputed, other.stats.recomputed) == (2, 1)
    assert got.tokens["a"] == plain_draws(PROMPT, 5, sum(b"a"))
    assert got.tokens["c"] == plain_draws([9, *PROMPT], 5, sum(b"c"))


def test_an_export_without_kv_or_request_says_so(tmp_path):
    made = engine()
    assert not made.export_kv("nobody", tmp_path / "kv")
    made.submit(request("a", PROMPT))
    assert not made.export_kv("a", tmp_path / "kv")
    made.submit(request("a", PROMPT))
    made.step()
    assert not made.export_kv("a", tmp_path / "no-folder" / "kv")
    assert made.stats.export_failures == 1
    assert not made.busy
    assert not list(tmp_path.iterdir())


def test_new_weights_keep_the_tokens_and_change_what_follows():
    made, got = engine(), Collected()
    made.submit(request("a", PROMPT, new=12))
    made.submit(request("b", PROMPT[:9], new=12))
    for _ in range(6):
        got.step(made)
    before = {name: len(tokens) for name, tokens in got.tokens.items()}
    made.load_weights(2, weights(1).items())
    made.check()
    got.drain(made)
    for name, prompt in (("a", PROMPT), ("b", PROMPT[:9])):
        cut = before[name]
        assert got.versions[name] == [1] * cut + [2] * (12 - cut)
        old = full_logprobs(reference(0), prompt, got.tokens[name])[:cut]
        new = full_logprobs(reference(1), prompt, got.tokens[name])[cut:]
        assert got.logprobs[name] == pytest.approx(old + new, abs=1e-5)


def test_weights_of_another_model_change_nothing():
    made = engine()
    short = dict(list(weights(1).items())[1:])
    bent = weights(1) | {"model.norm.weight": torch.ones(3)}
    for odd in (short, bent, weights(1) | {"x": torch.ones(1)}):
        with pytest.raises(EngineError, match="wanted the weights"):
            made.load_weights(2, odd.items())
    assert made.version == 1
    assert all(torch.equal(t, weights(0)[n]) for n, t in made.model.named_weights())


def test_dropped_kv_is_computed_again():
    made, got = engine(), Collected()
    made.submit(request("a", PROMPT, new=8))
    for _ in range(4):
        got.step(made)
    made.drop_kv()
    made.check()
    got.drain(made)
    exact(got, "a", PROMPT)
    assert got.tokens["a"] == plain_draws(PROMPT, 8, sum(b"a"))


def test_cancel_ends_a_request_once_wherever_it_is():
    made, got = engine(max_batch=1), Collected()
    made.submit(request("a", PROMPT))
    made.submit(request("b", PROMPT))
    for _ in range(4):
        got.step(made)
    for name in "ab":
        chunk = made.cancel(name)
        assert chunk is not None
        assert chunk.finish is FinishReason.ABORT
        assert not chunk.token_ids
        assert made.cancel(name) is None
        made.check()
    assert not made.busy
    assert made.step() == []
    assert len(got.tokens["a"]) > 0
    exact(got, "a", PROMPT)


def test_a_stop_token_ends_the_answer_and_is_part_of_it():
    free = plain_draws(PROMPT, 20, sum(b"a"))
    made, got = engine(), Collected()
    made.submit(request("a", PROMPT, new=20, stop_ids=[free[6]]))
    got.drain(made)
    assert got.tokens["a"] == free[: free.index(free[6]) + 1]
    assert got.finish["a"] is FinishReason.STOP


def test_the_context_limit_ends_an_answer():
    made, got = engine(max_context=24), Collected()
    made.submit(request("a", PROMPT, new=20))
    got.drain(made)
    assert len(got.tokens["a"]) == 4
    assert got.finish["a"] is FinishReason.LENGTH
    with pytest.raises(EngineError, match="context of 24"):
        made.submit(request("b", [1] * 24))


@pytest.mark.parametrize(
    ("prompt", "more"),
    [
        ([], {}),
        ([-1], {}),
        ([23], {}),
        ([1], {"temperature": -1.0}),
        ([1], {"temperature": float("nan")}),
        ([1], {"top_p": 0.0}),
        ([1], {"top_k": -1}),
        ([1], {"new": 3, "first_index": 3}),
    ],
)
def test_what_cannot_be_served_is_refused(prompt, more):
    made = engine()
    with pytest.raises(EngineError, match="wanted"):
        made.submit(request("a", prompt, **more))
    assert not made.busy


def test_a_request_id_is_served_once_at_a_time():
    made = engine()
    made.submit(request("a", PROMPT))
    with pytest.raises(EngineError, match="new request id"):
        made.submit(request("a", PROMPT))


def test_weights_that_give_no_distribution_are_an_error_and_can_be_replaced():
    made, got = engine(), Collected()
    made.submit(request("a", PROMPT, new=3))
    bad = weights(0) | {"model.norm.weight": torch.full((16,), float("nan"))}
    made.load_weights(2, bad.items())
    made.step()
    with pytest.raises(EngineError, match="version 2"):
        made.step()
    made.load_weights(3, weights(0).items())
    got.drain(made)
    assert got.tokens["a"] == plain_draws(PROMPT, 3, sum(b"a"))
    exact(got, "a", PROMPT)


def test_bfloat16_stays_near_its_own_full_forward():
    policy = model().to(torch.bfloat16)
    made, got = EmbeddedEngine(policy, 0, EngineLimits(max_context=64, block_tokens=4)), Collected()
    made.submit(request("a", PROMPT, new=20))
    got.drain(made)
    want = full_logprobs(policy, PROMPT, got.tokens["a"])
    assert got.logprobs["a"] == pytest.approx(want, abs=0.15)


def test_impossible_sizes_are_user_errors():
    for sizes in ({"max_context": 129}, {"kv_tokens": 32}, {"block_tokens": 0}):
        with pytest.raises(UserError):
            engine(**sizes)


@pytest.mark.slow
@pytest.mark.timeout(120)  # importing transformers takes most of it
def test_greedy_equals_transformers():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        initializer_range=0.1,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    theirs = transformers.Qwen3ForCausalLM(config).eval()
    shape = Qwen3Shape(50, 32, 48, 2, 4, 2, 8, 128, config.rms_norm_eps, _theta(config), True)
    ours = Qwen3(shape)
    known = dict(theirs.named_parameters())
    for name, t in ours.named_weights():
        t.copy_(known[name].data)
    made, got = EmbeddedEngine(ours, 0, EngineLimits(max_context=128)), Collected()
    for i in range(3):
        made.submit(request(f"r{i}", PROMPT[i:], new=30, temperature=0.0))
    got.drain(made)
    for i in range(3):
        prompt = torch.tensor([PROMPT[i:]])
        out = theirs.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=30, do_sample=False
        )
        assert got.tokens[f"r{i}"] == out[0, prompt.shape[1] :].tolist()
        want = full_logprobs(ours, PROMPT[i:], got.tokens[f"r{i}"])
        assert got.logprobs[f"r{i}"] == pytest.approx(want, abs=1e-5)


def _theta(config: Any) -> float:
    rope = getattr(config, "rope_parameters", None) or {}
    return float(rope.get("rope_theta", getattr(config, "rope_theta", 1e6)))
