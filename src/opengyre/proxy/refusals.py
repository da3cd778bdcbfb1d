"""Answers that are not a model's: one type, rendered by each dialect in its own words.

Invariant: a refusal says what was wanted, what was found and, where there is one, what to do.
"""

import enum

from opengyre.core.errors import ProxyError


class Kind(enum.Enum):
    """What went wrong; the value is the HTTP status."""

    BAD_REQUEST = 400
    """The request makes no sense or asks for what is not served."""
    UNAUTHENTICATED = 401
    """No key, or another execution's."""
    NOT_FOUND = 404
    """No such execution or path."""
    TOO_LARGE = 413
    """The body is over the limit."""
    FAILED = 500
    """Our fault: engine or store."""


class Refusal(ProxyError):  # noqa: N818 — to its reader it is an answer
    """Ends a request with an error body."""

    def __init__(self, kind: Kind, message: str, *, context_full: bool = False) -> None:
        self.kind, self.message, self.context_full = kind, message, context_full
        super().__init__(message)


def bad(message: str) -> Refusal:
    """A 400."""
    return Refusal(Kind.BAD_REQUEST, message)


def context_full(found: int, maximum: int) -> Refusal:
    """The one wording that harnesses know."""
    message = f"prompt is too long: {found} tokens > {maximum} maximum"
    return Refusal(Kind.BAD_REQUEST, message, context_full=True)
