"""A tokeniser as families use it: text to ids and back, nothing added, nothing cleaned up.

Invariant: every token that a family builds on is one token of the tokeniser, whatever stands around
it; a tokeniser for which that is not so is refused before anything runs.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from tokenizers import Tokenizer

from opengyre.core.errors import UserError
from opengyre.proxy.families.pieces import HUGE, PIECE, Splitter

LONG = 4096
"""Characters from which a text is encoded as a batch of one: that lets other threads run meanwhile."""


class Vocabulary:
    """Wraps the tokenizer of a model's folder."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids; special tokens in text become themselves."""
        if len(text) > LONG:
            return list(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def pieces(self, text: str) -> Iterator[list[int]]:
        """encode(text) a piece at a time, so that others can be served in between.

        An empty piece says that the next one will take long, since the text has no place to cut.
        """
        if len(text) <= PIECE or not self._splitter.splits:
            if len(text) > HUGE:
                yield []
            yield self.encode(text)
        else:
            yield from self._splitter.pieces(text)

    def fewest(self, text: str) -> int:
        """Tokens that encode(text) has at least; told without encoding it."""
        return self._splitter.fewest(text) if len(text) > PIECE else 0

    @cached_property
    def _splitter(self) -> Splitter:
        return Splitter(self._tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def require(self, token: str, family: str) -> int:
        """The id of a token that the family cannot do without. Raises UserError."""
        found = self._tokenizer.token_to_id(token)
        if found is None or self.encode(token) != [found]:
            raise UserError(
                f"a tokeniser with {token} as one special token",
                "none" if found is None else "it split into several tokens",
                f"use the tokenizer.json of a {family} model, or choose another policy.family",
            )
        return found

    def present(self, tokens: Iterable[str]) -> list[int]:
        """The ids of those tokens that this tokeniser has."""
        found = (self._tokenizer.token_to_id(token) for token in tokens)
        return [token for token in found if token is not None]
