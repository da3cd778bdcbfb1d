"""Random lives of two engines: no block leaks or mixes versions, no token is lost, all are exact."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.tiny import Collected, engine, full_logprobs, reference, request, weights

POLICIES = [reference(seed) for seed in range(4)]
BASES = [[5, 6, 7, 8, 9, 10, 11, 12, 13], [5, 6, 7, 8, 1, 2, 3, 4], [1]]

prompts = st.builds(
    lambda base, tail: BASES[base] + tail,
    st.integers(0, 2),
    st.lists(st.integers(0, 22), max_size=9),
)
which = st.integers(0, 1)
events = st.one_of(
    st.tuples(st.just("submit"), which, prompts, st.integers(1, 24)),
    st.tuples(st.just("step"), which, st.integers(1, 6)),
    st.tuples(st.just("cancel"), which, st.integers(0, 9)),
    st.tuples(st.just("move"), which, st.integers(0, 9), st.booleans()),
    st.tuples(st.just("load"), which),
    st.tuples(st.just("drop"), which),
)


class Life:
    def __init__(self, folder: Path, sizes: dict[str, int]) -> None:
        self.folder = folder
        self.engines = [engine(**sizes), engine(**sizes)]
        self.prompts: dict[str, list[int]] = {}
        self.new: dict[str, int] = {}
        self.at: dict[str, int] = {}
        self.got = Collected()
        self.serial = 0

    def alive(self, index: int) -> list[str]:
        return sorted(n for n, e in self.at.items() if e == index and n not in self.got.finish)

    def submit(self, index, prompt, new):
        name = f"r{len(self.prompts)}"
        self.prompts[name], self.new[name], self.at[name] = prompt, new, index
        self.engines[index].submit(request(name, prompt, new))

    def step(self, index, times):
        for _ in range(times):
            self.got.step(self.engines[index])

    def cancel(self, index, pick):
        if names := self.alive(index):
            name = names[pick % len(names)]
            assert self.engines[index].cancel(name) is not None
            self.got.finish[name] = "cancelled"

    def move(self, index, pick, with_kv):
        if not (names := self.alive(index)):
            return
        name = names[pick % len(names)]
        self.serial += 1
        path = self.folder / f"kv-{self.serial}"
        wrote = self.engines[index].export_kv(name, path)
        assert wrote == path.exists()
        sent = self.got.tokens.get(name, [])
        prompt = self.prompts[name] + sent
        again = request(name, prompt, self.new[name], first_index=len(sent))
        self.at[name] = 1 - index
        self.engines[1 - index].submit(again, path if with_kv and wrote else None)

    def load(self, index):
        made = self.engines[index]
        version = made.version % (len(POLICIES) - 1) + 1
        made.load_weights(version, weights(version).items())

    def drop(self, index):
        self.engines[index].drop_kv()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(events, max_size=40),
    st.sampled_from([36, 48, 200]),
    st.sampled_from([1, 3, 4]),
    st.integers(1, 20),
)
def test_random_lives(tmp_path_factory, happenings, kv_tokens, block_tokens, prefill):
    sizes = {
        "kv_tokens": kv_tokens,
        "block_tokens": block_tokens,
        "prefill_tokens": prefill,
        "max_context": 36,
        "max_batch": 4,
    }
    life = Life(tmp_path_factory.mktemp("life"), sizes)
    for index in (0, 1):
        life.engines[index].load_weights(1, weights(1).items())
    for name, *arguments in happenings:
        getattr(life, name)(*arguments)
        for made in life.engines:
            made.check()
    for made in life.engines:
        life.got.drain(made)
        assert made._cache.available == made._cache.blocks, "idle engines hold no block"
        made.load_weights(0, weights(0).items())
        assert len(made._cache._free) == made._cache.blocks, "no block survives its version"
        made.check()
    _all_exact(life)


def _all_exact(life: Life) -> None:
    for name, prompt in life.prompts.items():
        tokens, versions = life.got.tokens.get(name, []), life.got.versions.get(name, [])
        assert name in life.got.finish
        if life.got.finish[name] != "cancelled":
            assert len(tokens) == min(life.new[name], 36 - len(prompt))
        for version in set(versions):
            want = full_logprobs(POLICIES[version], prompt, tokens)
            for i, used in enumerate(versions):
                if used == version:
                    assert life.got.logprobs[name][i] == pytest.approx(want[i], abs=1e-5)
