"""Answers that are not a model's: one type, rendered by each dialect in its own words.

Invariant: a refusal says what was wanted, what was found and, where there is one, what to do; it
names the parameter that it is about, and whether asking again can help.
"""

import enum

from opengyre.core.errors import ProxyError

BUSY_RETRY_AFTER_S = 5
"""Seconds that a client is asked to wait where nobody knows better: a role switch's length."""


class Kind(enum.Enum):
    """What went wrong; the value is the HTTP status, unless a dialect has one of its own."""

    BAD_REQUEST = 400
    """The request makes no sense or asks for what is not served."""
    UNAUTHENTICATED = 401
    """No key, or another execution's."""
    NOT_FOUND = 404
    """No such execution or path."""
    WRONG_METHOD = 405
    """The path exists and takes another method."""
    CONFLICT = 409
    """It contradicts what was said before."""
    TOO_LARGE = 413
    """The body is over the limit."""
    RATE_LIMITED = 429
    """The execution has too many calls in flight."""
    FAILED = 500
    """Our fault: engine or store."""
    OVERLOADED = 503
    """The engine can take no more now."""


TRANSIENT = frozenset({Kind.RATE_LIMITED, Kind.FAILED, Kind.OVERLOADED})
"""The same request may be answered later."""


class Refusal(ProxyError):  # noqa: N818 — to its reader it is an answer
    """Ends a request with an error body."""

    def __init__(
        self,
        kind: Kind,
        message: str,
        *,
        context_full: bool = False,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        self.kind, self.message, self.context_full = kind, message, context_full
        self.param = param
        """Where in the request, as a path such as messages[0].content."""
        self.retry_after_s = retry_after_s
        super().__init__(message)

    @property
    def retry(self) -> bool:
        """Whether asking again can help."""
        return self.kind in TRANSIENT


def bad(message: str, param: str | None = None) -> Refusal:
    """A 400; the message starts with the parameter where one is known."""
    text = f"{param}: {message}" if param else message
    return Refusal(Kind.BAD_REQUEST, text, param=param)


def context_full(found: int, maximum: int, *, at_least: bool = False) -> Refusal:
    """The one wording that harnesses know. at_least: not all of the prompt was counted."""
    some = "at least " if at_least else ""
    message = f"prompt is too long: {some}{found} tokens > {maximum} maximum"
    return Refusal(Kind.BAD_REQUEST, message, context_full=True)


def too_many_calls(live: int) -> Refusal:
    """One program has more calls in flight than any real one was seen to have."""
    return Refusal(
        Kind.RATE_LIMITED,
        f"wanted fewer calls at once; {live} of this execution are in flight; wait for some",
        retry_after_s=BUSY_RETRY_AFTER_S,
    )
