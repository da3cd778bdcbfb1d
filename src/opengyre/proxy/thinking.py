"""How many of an answer's tokens are thinking.

Invariant: at most all of them, and 0 only without thinking. The mark that opens the thinking counts
with it.
"""

import bisect
import re
from collections.abc import Callable, Sequence

OPENING = re.compile(r"\s*(<[^>]*>)?\s*")
"""What families write before thinking; its name could be taken for the thinking itself."""


def thinking_tokens(
    decode: Callable[[Sequence[int]], str], ids: Sequence[int], thinking: str
) -> int:
    """The fewest leading tokens that hold the thinking as it was read from all of them."""
    if not thinking:
        return 0
    text = decode(ids)
    opening = OPENING.match(text)
    start = text.find(thinking, opening.end() if opening else 0)
    if start < 0:
        start = text.find(thinking)
    if start < 0:
        return len(ids)
    wanted = text[: start + len(thinking)]

    def holds(count: int) -> bool:
        return decode(ids[:count]).startswith(wanted)  # half a letter decodes to another one

    return 1 + bisect.bisect_left(range(1, len(ids)), True, key=holds)
