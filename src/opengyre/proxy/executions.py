"""The executions whose harnesses may call, and what became of their calls.

Invariant: a door is found by its execution's id and opened by its execution's key, never by one of
the two; closing it waits until everything it was doing is recorded.
"""

import asyncio
import hmac
from collections import Counter
from dataclasses import dataclass, field

from msgspec import Struct

from opengyre.core.errors import UserError
from opengyre.proxy.answers import Job
from opengyre.proxy.families.base import Family
from opengyre.proxy.history import History
from opengyre.proxy.reading import Reader
from opengyre.proxy.refusals import Kind, Refusal


class DoorReport(Struct, frozen=True, kw_only=True):
    """What one execution's calls came to. Made by proxy; read by app and harness."""

    execution_id: str
    complete_replies: int
    """Answers that went out whole."""
    calls: int
    """Calls recorded, aborted ones included."""
    failed_calls: int
    """Calls that failed through our fault."""
    refused_calls: int
    """Requests that were refused: malformed, unsupported, too long."""
    repeated_calls: int
    """Requests that were found to be retries and got the first one's answer."""
    aborted_calls: int
    """Calls that the harness gave up."""
    malformed_tool_calls: int
    """Tool calls that could not be parsed and went out as text."""
    context_limit_hit: bool
    """A prompt did not fit the policy's context."""
    forks: dict[str, int]
    """By ForkReason."""
    moves_with_kv: int
    moves_recomputed: int
    prompt_tokens: int
    reused_tokens: int
    """Of prompt_tokens, those taken from earlier calls."""
    sampled_tokens: int


@dataclass(slots=True)
class Counts:
    """Running totals of a door."""

    complete_replies: int = 0
    calls: int = 0
    failed_calls: int = 0
    refused_calls: int = 0
    repeated_calls: int = 0
    aborted_calls: int = 0
    malformed_tool_calls: int = 0
    context_limit_hit: bool = False
    forks: Counter[str] = field(default_factory=Counter)
    moves_with_kv: int = 0
    moves_recomputed: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    sampled_tokens: int = 0


@dataclass(eq=False, slots=True)
class Door:
    """One execution's way in, from open to close."""

    execution_id: str
    key: str
    harness: str
    seed: int
    temperature: float
    history: History
    counts: Counts = field(default_factory=Counts)
    jobs: dict[bytes, Job] = field(default_factory=dict)
    """Answers in the making, and answers made but not delivered, by the digest of the request."""
    live: set[Job] = field(default_factory=set)
    """Jobs that are not over."""
    started: int = 0
    """Generations begun: numbers the seeds."""
    reader: Reader = field(default_factory=Reader)
    recording: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Calls are recorded one by one, so that a parent's index is below its child's."""

    def report(self) -> DoorReport:
        """What became of it so far."""
        counts = self.counts
        return DoorReport(
            execution_id=self.execution_id,
            complete_replies=counts.complete_replies,
            calls=counts.calls,
            failed_calls=counts.failed_calls,
            refused_calls=counts.refused_calls,
            repeated_calls=counts.repeated_calls,
            aborted_calls=counts.aborted_calls,
            malformed_tool_calls=counts.malformed_tool_calls,
            context_limit_hit=counts.context_limit_hit,
            forks=dict(counts.forks),
            moves_with_kv=counts.moves_with_kv,
            moves_recomputed=counts.moves_recomputed,
            prompt_tokens=counts.prompt_tokens,
            reused_tokens=counts.reused_tokens,
            sampled_tokens=counts.sampled_tokens,
        )


class Executions:
    """All open doors."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._doors: dict[str, Door] = {}

    def open(
        self, execution_id: str, key: str, *, harness: str, seed: int, temperature: float = 1.0
    ) -> Door:
        """Let an execution's harness in. temperature 0 is greedy."""
        if execution_id in self._doors:
            raise UserError(
                "a fresh execution id", f"{execution_id} is open already", "close it first"
            )
        door = Door(execution_id, key, harness, seed, temperature, History(self._family))
        self._doors[execution_id] = door
        return door

    def find(self, execution_id: str, key: str) -> Door:
        """Raises Refusal: 404 for an unknown execution, 401 for a key that is not its own."""
        door = self._doors.get(execution_id)
        if door is None:
            raise Refusal(
                Kind.NOT_FOUND, f"no execution {execution_id} is open here; it may have ended"
            )
        if not hmac.compare_digest(key.encode(), door.key.encode()):
            found = "another key" if key else "no key"
            raise Refusal(
                Kind.UNAUTHENTICATED,
                f"execution {execution_id} wants its own key as x-api-key or Bearer; found {found}",
            )
        return door

    def refused(self, execution_id: str, refusal: Refusal) -> None:
        """Count a refusal that the execution's own harness got."""
        door = self._doors.get(execution_id)
        if door is None or refusal.kind is Kind.UNAUTHENTICATED:
            return
        door.counts.refused_calls += 1
        door.counts.context_limit_hit |= refusal.context_full

    def report(self, execution_id: str) -> DoorReport:
        """What became of an open execution's calls so far."""
        return self._doors[execution_id].report()

    async def close(self, execution_id: str) -> DoorReport:
        """Refuse further calls, stop those in flight, wait until their parts are recorded."""
        door = self._doors.pop(execution_id)
        live = list(door.live)
        for job in live:
            job.stop()
        await asyncio.gather(*(job.finished() for job in live))
        return door.report()
