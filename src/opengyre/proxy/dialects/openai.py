"""What OpenAI's two dialects have in common: errors, models, tools of free text.

Invariant: an error names its parameter and its code as OpenAI's own do, so that clients can branch
on them.
"""

from collections.abc import Sequence

from msgspec import Struct

from opengyre.proxy.dialects.base import no_choice
from opengyre.proxy.messages import Json
from opengyre.proxy.refusals import Kind, Refusal

ERRORS = {
    Kind.BAD_REQUEST: "invalid_request_error",
    Kind.UNAUTHENTICATED: "authentication_error",
    Kind.NOT_FOUND: "not_found_error",
    Kind.WRONG_METHOD: "invalid_request_error",
    Kind.CONFLICT: "invalid_request_error",
    Kind.TOO_LARGE: "invalid_request_error",
    Kind.RATE_LIMITED: "rate_limit_error",
    Kind.FAILED: "server_error",
    Kind.OVERLOADED: "server_error",
}
CODES = {
    Kind.UNAUTHENTICATED: "invalid_api_key",
    Kind.NOT_FOUND: "not_found",
    Kind.RATE_LIMITED: "rate_limit_exceeded",
    Kind.FAILED: "server_error",
    Kind.OVERLOADED: "server_is_overloaded",
}
PING = b": still at work\n\n"
"""A comment: OpenAI's streams have no ping of their own."""
FREE_TEXT: dict[str, Json] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""The schema that a free-text tool is shown with."""


class FreeFormat(Struct):
    """How a free-text tool wants its text."""

    type: str = "text"


class OpenAIDialect:
    """The half of a dialect that is the same for both."""

    tool_prefix = "call"
    request_id_header = "x-request-id"

    def ping(self) -> bytes:
        return PING

    def models(self, names: Sequence[str]) -> dict[str, Json]:
        return {"object": "list", "data": [self.model(name) for name in names]}

    def model(self, name: str) -> dict[str, Json]:
        return {"id": name, "object": "model", "created": 0, "owned_by": "opengyre"}

    def counted(self, tokens: int) -> dict[str, Json]:
        return {"object": "response.input_tokens", "input_tokens": tokens}

    def status(self, refusal: Refusal) -> int:
        return refusal.kind.value

    def error(self, refusal: Refusal, _request_id: str) -> dict[str, Json]:
        code = "context_length_exceeded" if refusal.context_full else CODES.get(refusal.kind)
        return {
            "error": {
                "message": refusal.message,
                "type": ERRORS[refusal.kind],
                "param": refusal.param,
                "code": code,
            }
        }


def calls_allowed(choice: str | dict[str, Json] | None) -> bool:
    """Whether tool_choice lets the policy call. Raises Refusal for one that forces it to."""
    if choice is None or choice == "auto":
        return True
    if choice == "none":
        return False
    found = choice if isinstance(choice, str) else str(choice.get("type"))
    raise no_choice("tool_choice", found)
