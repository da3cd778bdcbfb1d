"""A long text is encoded a piece at a time, refused before that where it cannot fit, and holds nobody up."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from opengyre.core.errors import EngineError
from opengyre.proxy.families.pieces import HUGE, PIECE, Splitter
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.history import History
from opengyre.proxy.messages import Conversation, Message
from opengyre.proxy.refusals import Refusal
from tests.proxy.conftest import KEY, Start, World
from tests.proxy.published import deepseek_tokenizer, qwen3_tokenizer
from tests.proxy.tokenizers_for_tests import small_tokenizer

SHORT = 400
"""Characters of a piece in these tests; BEHIND is 256 of them."""
ATOMS = [
    *(" ", "  ", "\n", "\r\n", "\t", " " * 300, "\n" * 40, " \n \n", "\u3000", "\u200d"),
    *(
        "a",
        "the ",
        "Word",
        "'s",
        "123",
        "45678",
        "!!",
        "...\n",
        '{"a": 1}',
        "_",
        "//---",
        "x" * 500,
    ),
    *("漢字", "かな・", "e\u0301", "\u0301", "\u0323\u0301", "한", "\u1112\u1161\u11ab", "😀"),
    *("<|im_start|>", "<|im_end|>", "<|im_", "<｜User｜>"),
]
texts = st.lists(
    st.tuples(st.sampled_from(ATOMS), st.integers(1, 30)).map(lambda pair: pair[0] * pair[1]),
    min_size=10,
    max_size=60,
).map("".join)


def prove_pieces(tokenizer: Tokenizer, text: str) -> None:
    splitter = Splitter(tokenizer, SHORT)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert [token for piece in splitter.pieces(text) for token in piece] == ids
    assert splitter.fewest(text) <= len(ids)


@given(texts)
@settings(deadline=None, max_examples=40)
def test_pieces_are_the_whole(text: str) -> None:
    prove_pieces(small_tokenizer(), text)


@pytest.mark.harnesses
@pytest.mark.timeout(300)
@pytest.mark.parametrize("published", [qwen3_tokenizer, deepseek_tokenizer])
def test_pieces_are_the_whole_with_published_tokenizers(published: Any) -> None:
    @given(texts)
    @settings(deadline=None, max_examples=60)
    def prove(text: str) -> None:
        prove_pieces(published(), text)

    assert Splitter(published()).splits
    prove()


def test_a_word_longer_than_a_piece_stays_whole() -> None:
    splitter = Splitter(small_tokenizer(), SHORT)
    pieces = list(splitter.pieces("one two " * 100 + "x" * 5000 + " and on" * 200))
    assert len(pieces) > 2
    prove_pieces(small_tokenizer(), "x" * 5000)


def test_before_a_piece_that_takes_long_comes_an_empty_one() -> None:
    pieces = list(Splitter(small_tokenizer(), SHORT).pieces("one two " * 100 + "x" * HUGE + " end"))
    assert [] in pieces
    assert len(pieces[pieces.index([]) + 1]) > HUGE // 20


def swallows() -> Iterator[Tokenizer]:
    """Tokenisers that go on in another way than they begin, or keep less than they are given."""
    by_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for change in (
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), by_bytes]),
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\s+"), "removed"), by_bytes]),
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"(?<=a)b"), "isolated"), by_bytes]),
    ):
        one = Tokenizer(models.BPE())
        one.pre_tokenizer = change
        yield one
    one = Tokenizer(models.BPE())
    one.pre_tokenizer, one.normalizer = by_bytes, normalizers.Strip()
    yield one
    one = Tokenizer(models.BPE())
    one.pre_tokenizer = by_bytes
    one.enable_truncation(9)
    yield one
    yield Tokenizer(models.BPE())


def test_of_a_tokeniser_that_is_not_understood_nothing_is_assumed() -> None:
    for tokenizer in swallows():
        splitter = Splitter(tokenizer)
        assert not splitter.splits
        assert splitter.fewest("x" * 9999) == 0
    unknown = Tokenizer(models.BPE(vocab={"?": 0}, merges=[], unk_token="?", fuse_unk=True))
    unknown.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    assert Splitter(unknown).fewest("x" * 9999) == 0


def test_a_composed_text_may_shrink_before_it_is_counted() -> None:
    tokenizer = Tokenizer.from_str(small_tokenizer().to_str())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken("한", normalized=True)])
    prove_pieces(tokenizer, "\u1112\u1161\u11ab" * 300)


# ---- what a history makes of it ------------------------------------------------------------------


class Watched(Qwen3Family):
    """Notes what it encodes, and whether the event loop's thread does."""

    def __init__(self) -> None:
        self.loop = threading.get_ident()
        self.encoded = 0
        """Tokens."""
        self.longest_in_loop = 0
        """Characters."""
        super().__init__(small_tokenizer())
        self.encoded = 0

    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        self._note(len(ids), len(text))
        return ids

    def pieces(self, text: str) -> Iterator[list[int]]:
        for piece in super().pieces(text):
            self._note(len(piece), len(text))
            yield piece

    def _note(self, tokens: int, characters: int) -> None:
        self.encoded += tokens
        if threading.get_ident() == self.loop:
            self.longest_in_loop = max(self.longest_in_loop, characters)


def saying(text: str) -> Conversation:
    return Conversation("Work.", (), (Message("user", text),))


def test_what_cannot_fit_is_refused_before_it_is_encoded() -> None:
    family = Watched()
    with pytest.raises(Refusal, match="at least") as found:
        list(History(family).looking_ahead(saying("word " * 40_000), 4000))
    assert found.value.context_full
    assert family.encoded < 10


def test_what_turns_out_not_to_fit_is_not_encoded_to_its_end() -> None:
    family = Watched()
    text = "\u00e9 " * 200_000  # three tokens each, by their bytes a fifth of one
    with pytest.raises(Refusal, match=r"at least \d+ tokens > 100000 maximum"):
        list(History(family).looking_ahead(saying(text), 100_000))
    assert family.encoded < 100_000 + 4 * PIECE


def test_work_is_given_up_between_pieces_and_comes_to_the_same() -> None:
    family = Watched()
    history, plain = History(family), History(family)
    for conversation in (
        saying("a few words\n" * 30_000),
        Conversation("", (), tuple(Message("user", f"{n} short ones") for n in range(9000))),
    ):
        assert len(list(history.looking_ahead(conversation, None))) > 3
        ahead, now = history.plan(conversation), plain.plan(conversation)
        assert (ahead.prompt_ids, ahead.steps) == (now.prompt_ids, now.steps)


# ---- what clients see ----------------------------------------------------------------------------

LONG: Any = [{"role": "user", "content": "word " * 60_000}]


async def test_a_huge_prompt_is_the_same_typed_error_as_a_long_one(start: Start) -> None:
    world = await start([])
    claude = anthropic.AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=0)
    gpt = openai.AsyncOpenAI(base_url=f"{world.url}/v1", api_key=KEY, max_retries=0)
    message = r"prompt is too long: at least \d+ tokens > 4000 maximum"
    async with claude, gpt:
        with pytest.raises(anthropic.BadRequestError, match=message):
            await claude.messages.create(model="m", max_tokens=9, messages=LONG)
        for asking in (
            gpt.chat.completions.create(model="m", messages=LONG),
            gpt.responses.create(model="m", input=LONG),
        ):
            with pytest.raises(openai.BadRequestError, match=message) as found:
                await asking
            assert found.value.code == "context_length_exceeded"
        counted = await claude.messages.count_tokens(model="m", messages=LONG)
    assert counted.input_tokens > 60_000
    report = await world.executions.close("e1")
    assert (report.refused_calls, report.context_limit_hit) == (3, True)


@pytest.mark.parametrize("huge", ["word and word\n" * 40_000, "x" * 600_000])
async def test_one_huge_text_does_not_hold_up_a_long_one(start: Start, huge: str) -> None:
    world = await start(["Well."], context_tokens=1 << 20, max_body_bytes=1 << 24)
    order: list[str] = []

    async def count(client: anthropic.AsyncAnthropic) -> None:
        messages: Any = [{"role": "user", "content": huge}]
        await client.messages.count_tokens(model="m", messages=messages)
        order.append("huge")

    async def ask(client: anthropic.AsyncAnthropic) -> None:
        long: Any = [{"role": "user", "content": "word " * 10_000}]
        await client.messages.create(model="m", max_tokens=9, messages=long)
        order.append("long")

    async with anthropic.AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=0) as client:
        counting = asyncio.ensure_future(count(client))
        await ask(client)
        await counting
    assert order == ["long", "huge"]


async def test_a_long_history_that_was_lost_to_a_fault_is_read_beside_the_event_loop(
    start: Start,
) -> None:
    family = Watched()
    world: World = await start(
        [EngineError("the cell is gone"), "Well."], family=family, context_tokens=1 << 20
    )
    messages: Any = [
        {"role": "user", "content": "word " * 10_000},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "Go on."},
    ]
    async with anthropic.AsyncAnthropic(base_url=world.url, api_key=KEY, max_retries=0) as client:
        with pytest.raises(anthropic.InternalServerError):
            await client.messages.create(model="m", max_tokens=9, messages=messages)
        answer = await client.messages.create(model="m", max_tokens=9, messages=messages)
    assert answer.content[0].type == "text"
    first, second = world.generator.requests
    assert list(first.prompt_ids) == list(second.prompt_ids)
    assert family.longest_in_loop < 1000
