"""The executions whose harnesses may call, and what became of their calls.

Invariant: a door is found by its execution's id and opened by its execution's key, never by one of
the two; closing it waits until everything it was doing is recorded. With a journal, a door that was
not closed can be opened again by another process (restore.py).
"""

import asyncio
import hashlib
import hmac
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct

from opengyre.core.errors import UserError
from opengyre.core.journal import DoorRecord, Tallies, UnfinishedCall
from opengyre.core.protocols import Journal
from opengyre.core.reasons import FinishReason, Role
from opengyre.core.records import Call
from opengyre.proxy.answers import Answer, Job, Spoken
from opengyre.proxy.families.base import Family
from opengyre.proxy.history import History, Node, Plan
from opengyre.proxy.reading import Reader
from opengyre.proxy.refusals import BUSY_RETRY_AFTER_S, Kind, Refusal

SUMMARIES = frozenset({Role.MAIN_SUMMARY, Role.SUB_AGENT_SUMMARY})
"""Roles of compactions."""


class DoorReport(Struct, frozen=True, kw_only=True):
    """What one execution's calls came to. Made by proxy; read by app and harness."""

    execution_id: str
    complete_replies: int
    """Answers that went out whole."""
    calls: int
    """Calls recorded, aborted ones included."""
    failed_calls: int
    """Calls that failed through our fault."""
    last_failed: bool
    """No answer went out whole since the last of them."""
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
    began_at: float | None = None
    """When its first call began; None without a call."""
    oldest_version: int | None = None
    """Lowest weight version that sampled a token; None where nothing was sampled."""
    calls_by_cell: dict[int, int] = {}
    """By the cell that finished them; without those that none did."""
    tokens_by_cell: dict[int, int] = {}
    """Sampled ones of these calls."""


Number = TypeVar("Number", bound=float)
Keep = Callable[[DoorReport], Awaitable[None]]


@dataclass(slots=True)
class Counts:
    """Running totals of a door."""

    complete_replies: int = 0
    calls: int = 0
    failed_calls: int = 0
    last_failed: bool = False
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
    began_at: float | None = None
    oldest_version: int | None = None
    calls_by_cell: Counter[int] = field(default_factory=Counter)
    tokens_by_cell: Counter[int] = field(default_factory=Counter)

    def add(self, call: Call, spoken: Spoken | None) -> None:
        """A call was recorded."""
        self.calls += 1
        self.aborted_calls += call.finish is FinishReason.ABORT
        self.moves_with_kv += call.moves_with_kv
        self.moves_recomputed += call.moves_recomputed
        self.prompt_tokens += call.reused + len(call.suffix_ids)
        self.reused_tokens += call.reused
        self.sampled_tokens += len(call.output_ids)
        self.malformed_tool_calls += spoken.malformed_calls if spoken else 0
        if call.fork is not None:
            self.forks[call.fork.value] += 1
        if call.cell is not None:
            self.calls_by_cell[call.cell] += 1
            self.tokens_by_cell[call.cell] += len(call.output_ids)
        self.began_at = _lowest([call.started_at], self.began_at)
        self.oldest_version = _lowest([s.version for s in call.versions], self.oldest_version)

    def failed(self) -> None:
        """A call failed through our fault."""
        self.failed_calls += 1
        self.last_failed = True

    def replied(self) -> None:
        """An answer went out whole."""
        self.complete_replies += 1
        self.last_failed = False


@dataclass(eq=False, slots=True)
class Door:
    """One execution's way in, from open to close."""

    execution_id: str
    key_digest: bytes
    harness: str
    seed: int
    temperature: float
    history: History
    journal: Journal | None = None
    """Where it survives this process; None: it need not."""
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
    roles: dict[str, Role] = field(default_factory=dict)
    """Of earlier calls, by the tool calls that they made and the sessions that they named."""
    closed: bool = False
    """Its execution is over: nothing is begun any more."""
    suspended: bool = False
    """Another process will go on with it: nothing is begun or given up any more."""
    unfinished: list[tuple[UnfinishedCall, Plan]] = field(default_factory=list)
    """Calls that another process began; they wait for somebody to serve them."""
    unread: list[tuple[bytes, Answer]] = field(default_factory=list)
    """Answers that another process made and could not deliver, by the digest of their request."""

    def began(self, session: str, role: Role) -> None:
        """A call of this session begins; empty for a program that names none."""
        if session and role not in SUMMARIES:
            self.roles[session] = role

    def role_of(self, names: Iterable[str]) -> Role | None:
        """Of the earlier call that has the first known of these names."""
        return next((self.roles[name] for name in names if name in self.roles), None)

    def check_open(self) -> None:
        """Raises Refusal when nothing may be begun."""
        if self.closed:
            raise not_open(self.execution_id)
        if self.suspended:
            raise restarting()

    def learn(self, plan: Plan, call: Call, spoken: Spoken | None) -> Node | None:
        """The call is durable: count it, and let later requests go on from it.

        Returns the node of its answer, if there is one to go on from.
        """
        self.counts.add(call, spoken)
        prompt = self.history.keep(plan, call.call_id, call.output_ids)
        if spoken is None:
            return None
        self.roles.update(dict.fromkeys((made.call_id for made in spoken.message.calls), call.role))
        if spoken.summary:
            self.history.keep_summary(spoken.message.text)
        return self.history.keep_reply(
            prompt, call.call_id, spoken.message, stopped=spoken.stopped, faithful=spoken.faithful
        )

    def counted(self) -> None:
        """Counts changed that no call tells: write them down."""
        if self.journal is None:
            return
        counts = self.counts
        tallies = Tallies(
            started=self.started,
            failed_calls=counts.failed_calls,
            last_failed=counts.last_failed,
            refused_calls=counts.refused_calls,
            repeated_calls=counts.repeated_calls,
            context_limit_hit=counts.context_limit_hit,
        )
        self.journal.counted(self.execution_id, tallies)

    def report(self) -> DoorReport:
        """What became of it so far."""
        counts = self.counts
        return DoorReport(
            execution_id=self.execution_id,
            complete_replies=counts.complete_replies,
            calls=counts.calls,
            failed_calls=counts.failed_calls,
            last_failed=counts.last_failed,
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
            began_at=counts.began_at,
            oldest_version=counts.oldest_version,
            calls_by_cell=dict(counts.calls_by_cell),
            tokens_by_cell=dict(counts.tokens_by_cell),
        )


class Executions:
    """All open doors."""

    def __init__(self, family: Family, journal: Journal | None = None) -> None:
        """journal: where doors survive this process; without one they end with it."""
        self._family = family
        self._journal = journal
        self._doors: dict[str, Door] = {}

    def __contains__(self, execution_id: str) -> bool:
        return execution_id in self._doors

    @property
    def doors(self) -> list[Door]:
        """All that are open, in order of opening."""
        return list(self._doors.values())

    @property
    def idle(self) -> bool:
        """No call of theirs is in the making."""
        return not any(door.live for door in self._doors.values())

    def open(
        self, execution_id: str, key: str, *, harness: str, seed: int, temperature: float = 1.0
    ) -> Door:
        """Let an execution's harness in. temperature 0 is greedy."""
        if execution_id in self._doors:
            raise UserError(
                "a fresh execution id", f"{execution_id} is open already", "close it first"
            )
        record = DoorRecord(
            execution_id=execution_id,
            key_digest=key_digest(key),
            harness=harness,
            seed=seed,
            temperature=temperature,
        )
        if self._journal is not None:
            self._journal.opened(record)
        return self.add(record)

    def add(self, record: DoorRecord) -> Door:
        """A door as it was opened, here or by another process."""
        door = Door(
            record.execution_id,
            record.key_digest,
            record.harness,
            record.seed,
            record.temperature,
            History(self._family),
            self._journal,
        )
        self._doors[record.execution_id] = door
        return door

    def find(self, execution_id: str, key: str) -> Door:
        """Raises Refusal: 404 for an unknown execution, 401 for a key that is not its own."""
        door = self._doors.get(execution_id)
        if door is None:
            raise not_open(execution_id)
        if not hmac.compare_digest(key_digest(key), door.key_digest):
            found = "another key" if key else "no key"
            raise Refusal(
                Kind.UNAUTHENTICATED,
                f"execution {execution_id} wants its own key as x-api-key or Bearer; found {found}",
            )
        door.check_open()
        return door

    def refused(self, execution_id: str, refusal: Refusal) -> None:
        """Count a refusal that the execution's own harness got before a call began."""
        door = self._doors.get(execution_id)
        if door is None or door.suspended or refusal.kind is Kind.UNAUTHENTICATED:
            return
        if refusal.kind is Kind.FAILED:
            door.counts.failed()
        else:
            door.counts.refused_calls += 1
        door.counts.context_limit_hit |= refusal.context_full
        door.counted()

    def report(self, execution_id: str) -> DoorReport:
        """What became of an open execution's calls so far."""
        return self._doors[execution_id].report()

    async def close(self, execution_id: str, keep: Keep | None = None) -> DoorReport:
        """Refuse further calls, stop those in flight, wait until their parts are recorded.

        keep makes the end durable, the journal's part of it included. If it raises, the execution
        is shut but not closed: ask again. Raises Refusal when another process will go on with it.
        """
        door = self._doors[execution_id]
        if door.suspended:
            raise restarting()
        door.closed = True
        await _stop(door)
        report = door.report()
        if keep is not None:
            await keep(report)
        elif door.journal is not None:
            door.journal.closed(execution_id)
        del self._doors[execution_id]
        return report

    def change_keys(self, key_of: Callable[[str], str]) -> None:
        """From now on each door that is open is opened by this key, and by no other."""
        for door in self._doors.values():
            door.key_digest = key_digest(key_of(door.execution_id))

    async def suspend(self) -> None:
        """Refuse further calls and stop all, for another process to go on with. Needs a journal.

        Unfinished calls stay unfinished, with every token that they have; waiting clients are told
        to ask again. The doors stay open in the journal, which can be closed once this returns.
        """
        assert self._journal is not None, "nobody could go on"
        for door in self.doors:
            door.suspended = True
        for door in self.doors:
            await _stop(door)


def _lowest(found: list[Number], before: Number | None) -> Number | None:
    return min(found if before is None else [*found, before], default=None)


async def _stop(door: Door) -> None:
    live = list(door.live)
    for job in live:
        job.stop()
    await asyncio.gather(*(job.finished() for job in live))


def not_open(execution_id: str) -> Refusal:
    """There is no such execution, or not any more."""
    return Refusal(Kind.NOT_FOUND, f"no execution {execution_id} is open here; it may have ended")


def restarting() -> Refusal:
    """The execution is between two proxies."""
    message = "the proxy is being restarted; ask again"
    return Refusal(Kind.OVERLOADED, message, retry_after_s=BUSY_RETRY_AFTER_S)


def key_digest(key: str) -> bytes:
    """What is kept of a key."""
    return hashlib.blake2b(key.encode(), digest_size=32).digest()
