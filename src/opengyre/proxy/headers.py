"""Headers that every response carries, beside its dialect's body.

Invariant: each response names its request; each refusal says whether asking again can help, and
when; each answer names what of its request the run decided instead.
"""

from collections.abc import Sequence

from opengyre.proxy.refusals import Refusal

NOT_APPLIED = "x-opengyre-not-applied"
"""Names the parameters that were asked for and not applied."""
LONGEST = 2000
"""Characters of names in a header: some programs give up at 8 KB of headers."""

Headers = dict[str, str]


def answer_headers(name: str, request_id: str, not_applied: Sequence[str]) -> Headers:
    """name: the header in which the dialect's clients look for request_id."""
    headers = {name: request_id}
    if not_applied:
        headers[NOT_APPLIED] = _printable(", ".join(not_applied))[:LONGEST]
    return headers


def refusal_headers(name: str, request_id: str, refusal: Refusal) -> Headers:
    """Both vendors' clients obey x-should-retry and retry-after."""
    headers = {name: request_id, "x-should-retry": "true" if refusal.retry else "false"}
    if refusal.retry_after_s is not None:
        headers["retry-after"] = str(refusal.retry_after_s)
    return headers


def _printable(text: str) -> str:
    return "".join(letter if letter.isascii() and letter.isprintable() else "?" for letter in text)
