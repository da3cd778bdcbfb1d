"""Token ids, four bytes each.

Invariant: a TokenIds equals, adds to and slices like the list of the same numbers; only its memory
and the cost of copying it differ (a list of a million new ints takes 40 MB and fifty milliseconds).
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self, SupportsIndex, cast, overload

if TYPE_CHECKING:
    Ints = array[int]
    Places = slice[SupportsIndex | None, SupportsIndex | None, SupportsIndex | None]
else:
    Ints = array  # takes no type argument before Python 3.12


class TokenIds(Ints):
    """Made by proxy; read by engines, which ask for a list where they need one."""

    __slots__ = ()
    __hash__ = None  # like a list's

    def __new__(cls, ids: Iterable[int] = ()) -> Self:
        return cast("Self", super().__new__(cls, "i", ids))

    @classmethod
    def joined(cls, pieces: "Iterable[array[int]]") -> "TokenIds":
        """One after the other; pieces are arrays of the same kind."""
        made = cls()
        made.frombytes(b"".join(pieces))  # extending piece by piece would move it every time
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):
            return len(self) == len(other) and self.tolist() == other
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: "Places") -> "TokenIds": ...
    def __getitem__(self, key: "SupportsIndex | Places") -> "int | TokenIds":
        if isinstance(key, slice):
            return TokenIds(super().__getitem__(key))
        return super().__getitem__(key)

    def __add__(self, other: Sequence[int]) -> "TokenIds":
        made = TokenIds(self)
        made.extend(other if isinstance(other, array) else array("i", other))
        return made

    def __radd__(self, other: Sequence[int]) -> "TokenIds":
        return TokenIds(other) + self
