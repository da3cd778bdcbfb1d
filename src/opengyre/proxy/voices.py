"""Which dialect a request is answered in, and what is said before any dialect has read it.

Invariant: whoever is refused hears it in the words of the API that was asked, so that its client raises
its own typed exception; where the path tells no API, the headers do.
"""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from opengyre.core.protocols import IdSource
from opengyre.proxy.dialects.anthropic import AnthropicDialect
from opengyre.proxy.dialects.base import Dialect
from opengyre.proxy.dialects.chat import ChatDialect
from opengyre.proxy.dialects.responses import ResponsesDialect
from opengyre.proxy.headers import Headers, answer_headers, refusal_headers
from opengyre.proxy.messages import Json
from opengyre.proxy.refusals import Refusal


class Voices:
    """The dialects of one door."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids
        self.anthropic = AnthropicDialect()
        self.chat = ChatDialect()
        self.responses = ResponsesDialect()
        self._by_path: dict[str, Dialect] = {
            "/v1/messages": self.anthropic,
            "/v1/chat/completions": self.chat,
            "/v1/responses": self.responses,
        }

    def of(self, request: Request) -> Dialect:
        """By the path; of paths that several have, only Anthropic's clients tell a version."""
        path = request.url.path
        for own, dialect in self._by_path.items():
            if path.endswith(own) or f"{own}/" in path:
                return dialect
        return self.anthropic if "anthropic-version" in request.headers else self.chat

    def refuse(self, request: Request, refusal: Refusal) -> Response:
        """A refusal in the words of the dialect that was asked."""
        return self.say(self.of(request), refusal)

    def say(self, dialect: Dialect, refusal: Refusal) -> Response:
        """The same, where the dialect is known."""
        request_id = self._ids.new("req")
        headers = refusal_headers(dialect.request_id_header, request_id, refusal)
        return _json(dialect.status(refusal), headers, dialect.error(refusal, request_id))

    def tell(
        self, dialect: Dialect, body: dict[str, Json], not_applied: Sequence[str] = ()
    ) -> Response:
        """An answer that is no model's."""
        name = dialect.request_id_header
        return _json(200, answer_headers(name, self._ids.new("req"), not_applied), body)


def _json(status: int, headers: Headers, body: Json) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
