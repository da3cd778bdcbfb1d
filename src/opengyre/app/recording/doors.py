"""Who may call a recording.

Invariant: nobody gets in without the recording's key; an execution that was ended stays ended, and
one that was left open by a killed proxy goes on under the recording's key of now. Whoever is refused
hears it in the words of the API that was asked.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from opengyre.app.recording.ending import Endings, Said, shortened
from opengyre.app.recording.options import NAME
from opengyre.core.errors import UserError
from opengyre.proxy.app import NOBODY, given_key
from opengyre.proxy.bodies import decode, read_body
from opengyre.proxy.executions import Executions, not_open
from opengyre.proxy.refusals import Kind, Refusal
from opengyre.proxy.session import failure
from opengyre.proxy.voices import Voices

PATH = re.compile(r"/run/([^/]+)(/.*)?")
END = "/end"
"""POST here ends an execution."""
SHORTEST_KEY = 8
END_BODY_BYTES = 1 << 20


def known_key(run: Path) -> str | None:
    """The key that the recording had."""
    file = run / "key"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None


def recording_key(run: Path, given: str | None) -> str:
    """The recording's key: the one given, the one it had, or a new one. Raises UserError."""
    file = run / "key"
    if given is not None and len(given) < SHORTEST_KEY:
        raise UserError(
            f"a key of at least {SHORTEST_KEY} characters", f"one of {len(given)}", "choose another"
        )
    if given is None and (known := known_key(run)) is not None:
        return known
    key = given or f"key-{secrets.token_hex(16)}"
    file.touch(mode=0o600)
    file.write_text(key + "\n", encoding="utf-8")
    return key


def key_of(key: str, execution_id: str, *, own: bool) -> str:
    """The key that opens one execution: the recording's, or one made from it."""
    if not own:
        return key
    digest = hashlib.blake2b(execution_id.encode(), key=key.encode()[:64], digest_size=16)
    return f"key-{digest.hexdigest()}"


class FrontDoor:
    """The proxy's application, with executions that open on first use and can be ended."""

    def __init__(
        self,
        inner: ASGIApp,
        executions: Executions,
        endings: Endings,
        voices: Voices,
        key_for: Callable[[str], str],
        admit: Callable[[str], None] | None,
    ) -> None:
        """key_for gives the key of an execution; admit opens one; None: only those that are open."""
        self._inner, self._executions, self._endings = inner, executions, endings
        self._voices, self._key_for, self._admit = voices, key_for, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        found = PATH.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
        app = self._inner
        if found is not None:
            execution_id, rest = found[1], found[2]
            request = Request(scope, receive)
            try:
                if rest == END and scope["method"] == "POST":
                    app = await self._end(execution_id, request)
                else:
                    self._open(execution_id, given_key(request.headers))
            except Refusal as refusal:
                app = self._voices.refuse(request, refusal)
            except ClientDisconnect:
                app = Response(status_code=NOBODY)
            except Exception as error:  # noqa: BLE001 — ours: logged and answered, never silent
                app = self._voices.refuse(request, failure(error))
        await app(scope, receive, send)

    def _open(self, execution_id: str, given: str) -> None:
        """Open it if it may be. Raises Refusal, unless that is for the proxy to say."""
        if execution_id in self._executions:
            return
        if execution_id in self._endings:
            raise Refusal(Kind.NOT_FOUND, f"execution {execution_id} has ended")
        if self._admit is None:
            return
        self._check_key(execution_id, given)
        if not NAME.fullmatch(execution_id):
            wanted = "wanted a name of at most 64 letters, digits, dots and dashes after /run/"
            raise Refusal(Kind.NOT_FOUND, f"{wanted}; found {shortened(execution_id)}")
        self._admit(execution_id)

    async def _end(self, execution_id: str, request: Request) -> Response:
        given = given_key(request.headers)
        if execution_id not in self._endings:
            self._open(execution_id, given)
            if execution_id not in self._executions:
                raise not_open(execution_id)
        self._check_key(execution_id, given)
        body = await read_body(request, END_BODY_BYTES)
        said = Said.of(decode(body) if body else {}, execution_id)
        told = await self._endings.end(execution_id, said)
        return Response(msgspec.json.encode(told), media_type="application/json")

    def _check_key(self, execution_id: str, given: str) -> None:
        if not hmac.compare_digest(given.encode(), self._key_for(execution_id).encode()):
            wanted = f"execution {shortened(execution_id)} wants its key as x-api-key or Bearer"
            found = "another" if given else "none"
            raise Refusal(Kind.UNAUTHENTICATED, f"{wanted}; found {found}")
