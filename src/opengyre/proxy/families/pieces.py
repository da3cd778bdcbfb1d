"""Long texts a piece at a time, and how few tokens a text can have.

Invariant: the pieces' tokens one after another are those of the whole text. A piece ends where the
tokeniser's own splitting ended a word, with so much text behind it that nothing further on could have
ended it elsewhere. A tokeniser of which that is not certain gives one piece; one that could swallow
text says of every text that it may have no token at all.
"""

import json
import unicodedata
from collections.abc import Iterator
from typing import Any

from tokenizers import Encoding, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

PIECE = 1 << 15
"""Characters: some 50 ms of a core."""
HUGE = 1 << 19
"""Characters in one piece that take about a second: a piece without tokens comes first."""
BEHIND = 256
"""Characters behind a cut: more than any special token has, which must not be cut."""
WORDS = 2
"""Words behind a cut: white space up to a line's end and what follows it may still become one."""
NFC_SHRINKS = 3
"""At most: a syllable of Korean in three letters is nine bytes and becomes one of three."""


class Splitter:
    """What is known of one tokeniser's way to split."""

    def __init__(self, tokenizer: Tokenizer, piece: int = PIECE) -> None:
        self._tokenizer, self._piece = tokenizer, piece
        steps, normal = _steps(tokenizer.pre_tokenizer), _steps(tokenizer.normalizer)
        self._as_written = not normal
        whole = tokenizer.truncation is None and [one["type"] for one in normal] in ([], ["NFC"])
        self.splits = whole and bool(steps) and all(map(_from_anywhere, steps))
        """Whether a text goes on from a word's end as a text of its own would."""
        by_bytes = any(step["type"] == "ByteLevel" for step in steps)
        model = tokenizer.model
        kept = self.splits and by_bytes and isinstance(model, BPE) and not model.unk_token
        self._longest = _longest(tokenizer) if kept else 0

    def fewest(self, text: str) -> int:
        """Tokens that this text has at least."""
        if not self._longest:
            return 0
        size = len(text.encode())
        if not (self._as_written or text.isascii()):
            size //= NFC_SHRINKS
        return -(-size // self._longest)

    def pieces(self, text: str) -> Iterator[list[int]]:
        """Its tokens."""
        start, size = 0, self._piece
        while start < len(text):
            encoded = self._encode(text[start : start + size])
            if start + size >= len(text):
                yield list(encoded.ids)
                return
            cut = _cut(encoded, text[start : start + size])
            if cut is None:
                size *= 2  # a word longer than that
                if size > HUGE:
                    size = len(text)
                    yield []
                continue
            tokens, characters = cut
            yield list(encoded.ids[:tokens])
            start, size = start + characters, self._piece

    def _encode(self, text: str) -> Encoding:
        """As a batch of one: that lets other threads run meanwhile."""
        return self._tokenizer.encode_batch([text], add_special_tokens=False)[0]


def _cut(encoded: Encoding, text: str) -> tuple[int, int] | None:
    """(tokens, characters) before the last place where the text can be cut, or None."""
    words, offsets = encoded.word_ids, encoded.offsets
    ends = 0
    for place in range(len(words) - 1, 0, -1):
        if words[place] is None or words[place] == words[place - 1]:
            continue
        ends += 1
        at = offsets[place][0]
        apart = at == offsets[place - 1][1] and not unicodedata.combining(text[at])
        if ends >= WORDS and at <= len(text) - BEHIND and apart:
            return place, at
    return None


def _steps(component: PreTokenizer | Normalizer | None) -> list[dict[str, Any]]:
    """What it is made of, as a tokenizer.json has it; the whole file would take a second to read."""
    return [] if component is None else _flat(json.loads(component.__getstate__()))


def _flat(step: dict[str, Any]) -> list[dict[str, Any]]:
    if step["type"] != "Sequence":
        return [step]
    parts = step.get("pretokenizers") or step.get("normalizers") or []
    return [one for part in parts for one in _flat(part)]


def _from_anywhere(step: dict[str, Any]) -> bool:
    """Whether it looks at nothing before a word's beginning, and keeps every character."""
    if step["type"] == "Split":
        pattern = step["pattern"].get("Regex", "")
        return step["behavior"] == "Isolated" and "(?<" not in pattern and "\\b" not in pattern
    if step["type"] == "ByteLevel":
        return not step["add_prefix_space"]
    return bool(step["type"] == "Digits")


def _longest(tokenizer: Tokenizer) -> int:
    """Bytes of the longest token; of those that are learnt, each character stands for one byte."""
    added = tokenizer.get_added_tokens_decoder()
    learnt = (
        len(tokenizer.id_to_token(one) or "")
        for one in range(tokenizer.get_vocab_size(with_added_tokens=True))
        if one not in added
    )
    written = [len(token.content.encode()) for token in added.values()]
    return max([*written, *learnt], default=0)
