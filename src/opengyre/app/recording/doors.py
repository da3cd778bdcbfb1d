"""Who may call a recording, and how an execution of it ends.

Invariant: nobody gets in without the recording's key; an execution that was ended stays ended, and
one that was left open by a killed proxy goes on under the same key.
"""

import asyncio
import hashlib
import hmac
import re
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from opengyre.app.groups import samples_from_store
from opengyre.app.recording.options import NAME, RECORDED
from opengyre.config.run import RunConfig
from opengyre.core.errors import UserError
from opengyre.core.protocols import Clock
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import ExecutionRecord, Verdict
from opengyre.proxy.app import NOBODY
from opengyre.proxy.bodies import decode, read_body
from opengyre.proxy.executions import DoorReport, Executions
from opengyre.proxy.messages import Json
from opengyre.proxy.refusals import Kind, Refusal, bad
from opengyre.store.rows import GroupRow, GroupState
from opengyre.store.run import RunStore

PATH = re.compile(r"/run/([^/]+)(/.*)?")
END = "/end"
"""POST here ends an execution."""
SHORTEST_KEY = 8
END_BODY_BYTES = 1 << 20
SHOWN = 80
"""Characters of a value that a message repeats."""


def recording_key(run: Path, given: str | None) -> str:
    """The recording's key: the one given, the one it had, or a new one. Raises UserError."""
    file = run / "key"
    if given is not None and len(given) < SHORTEST_KEY:
        raise UserError(
            f"a key of at least {SHORTEST_KEY} characters", f"one of {len(given)}", "choose another"
        )
    if given is None and file.is_file():
        return file.read_text(encoding="ascii").strip()
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


@dataclass(frozen=True)
class Said:
    """What the one who ends an execution says of it."""

    reward: float | None
    group: str
    task: str
    passed: bool | None
    detail: str

    @staticmethod
    def of(body: dict[str, Json], execution_id: str) -> "Said":
        """Raises Refusal."""
        return Said(
            reward=_reward(body),
            group=_text(body, "group", execution_id),
            task=_text(body, "task", RECORDED),
            passed=_truth(body, "passed"),
            detail=_text(body, "detail", ""),
        )


class Endings:
    """Ends executions and books their rewards."""

    def __init__(
        self, executions: Executions, store: RunStore, config: RunConfig, clock: Clock, harness: str
    ) -> None:
        self._executions, self._store = executions, store
        self._config, self._clock, self._harness = config, clock, harness
        self.ended = {name for name in store.recorded() if name not in executions}
        self.reports: list[DoorReport] = []

    async def end(self, execution_id: str, said: Said) -> DoorReport:
        """No more calls; with a reward there is a record and an advantage."""
        report = await self._executions.close(execution_id)
        self.ended.add(execution_id)
        self.reports.append(report)
        if said.reward is not None and report.calls:
            await self._book(execution_id, said)
        return report

    async def _book(self, execution_id: str, said: Said) -> None:
        calls = await asyncio.to_thread(self._store.calls, execution_id)
        record = ExecutionRecord(
            execution_id=execution_id,
            group_id=said.group,
            task_id=said.task,
            harness=self._harness,
            split="train",
            version_dispatched=min((s.version for c in calls for s in c.versions), default=0),
            attempt=1,
            dispatched_at=calls[0].started_at,
            started_at=calls[0].started_at,
            ended_at=self._clock.now(),
            verdict=Verdict(
                kind=VerdictKind.SCORED,
                ending=Ending.FINISHED,
                reward=said.reward,
                passed=said.passed,
                detail=said.detail,
            ),
        )
        await self._store.put_execution(record)
        await self._put_group(record)

    async def _put_group(self, record: ExecutionRecord) -> None:
        """The group as far as it has come: advantages are relative to it."""
        rows = {row.group_id: row for row in self._store.groups()}
        known = rows.get(record.group_id)
        row = GroupRow(
            group_id=record.group_id,
            index=known.index if known else len(rows),
            task_id=record.task_id,
            version_dispatched=record.version_dispatched,
            state=GroupState.READY,
        )
        members = [r for r in self._store.executions() if r.group_id == record.group_id]
        samples = await asyncio.to_thread(  # trees of a million tokens take seconds
            samples_from_store, self._config, self._store, record.group_id, members
        )
        await self._store.put_group(row, samples.ledger_by_execution)


class FrontDoor:
    """The proxy's application, with executions that open on first use and can be ended."""

    def __init__(
        self,
        inner: ASGIApp,
        executions: Executions,
        endings: Endings,
        key: str,
        admit: Callable[[str], None] | None,
    ) -> None:
        """admit opens an execution by its id; None: only those that are open already."""
        self._inner, self._executions, self._endings = inner, executions, endings
        self._key, self._admit = key, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        found = PATH.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
        app = self._inner
        if found is not None:
            execution_id, rest = found[1], found[2]
            given = _key(Headers(scope=scope))
            refusal = self._open(execution_id, given)
            if refusal is not None:
                app = _refused(refusal)
            elif rest == END and scope["method"] == "POST":
                app = await self._end(execution_id, given, Request(scope, receive))
        await app(scope, receive, send)

    def _open(self, execution_id: str, given: str) -> Refusal | None:
        """Open it if it may be; why not, unless that is for the proxy to say."""
        if execution_id in self._executions:
            return None
        if execution_id in self._endings.ended:
            return Refusal(Kind.NOT_FOUND, f"execution {execution_id} has ended")
        if self._admit is None:
            return None
        if not hmac.compare_digest(given.encode(), self._key.encode()):
            wanted = "the recording wants its key as x-api-key or Bearer"
            return Refusal(
                Kind.UNAUTHENTICATED, f"{wanted}; found {'another' if given else 'none'}"
            )
        if not NAME.fullmatch(execution_id):
            wanted = "wanted a name of at most 64 letters, digits, dots and dashes after /run/"
            return Refusal(Kind.NOT_FOUND, f"{wanted}; found {shortened(execution_id)}")
        self._admit(execution_id)
        return None

    async def _end(self, execution_id: str, given: str, request: Request) -> Response:
        try:
            self._executions.find(execution_id, given)
            body = await read_body(request, END_BODY_BYTES)
            said = Said.of(decode(body) if body else {}, execution_id)
            self._executions.find(execution_id, given)  # another end may have come meanwhile
            report = await self._endings.end(execution_id, said)
        except Refusal as refusal:
            return _refused(refusal)
        except ClientDisconnect:
            return Response(status_code=NOBODY)
        return JSONResponse({"calls": report.calls, "sampled_tokens": report.sampled_tokens})


def _refused(refusal: Refusal) -> Response:
    return JSONResponse({"error": {"message": refusal.message}}, status_code=refusal.kind.value)


def _key(headers: Headers) -> str:
    given = headers.get("x-api-key")
    if given is not None:
        return given
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def shortened(value: Json) -> str:
    """A value in a message."""
    text = ascii(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _reward(said: dict[str, Json]) -> float | None:
    reward = said.get("reward")
    if reward is None:
        return None
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        raise bad(f"wanted a finite number as reward; found {shortened(reward)}")
    if not abs(reward) <= sys.float_info.max:
        raise bad(f"wanted a finite number as reward; found {shortened(reward)}")
    return float(reward)


def _truth(said: dict[str, Json], key: str) -> bool | None:
    found = said.get(key)
    if found is not None and not isinstance(found, bool):
        raise bad(f"wanted true or false as {key}; found {shortened(found)}")
    return found


def _text(said: dict[str, Json], key: str, default: str) -> str:
    found = said.get(key, default)
    if not isinstance(found, str):
        raise bad(f"wanted text as {key}; found {shortened(found)}")
    return found
