"""What a proxy leaves behind so that another process can take its executions over.

Invariant: a Trace says of a call what its tokens do not: where its prompt hangs in the execution's
history, and which request asked for it. Replaying calls and traces in order of recording gives the
same history again.
"""

from msgspec import Struct

from opengyre.core.reasons import ForkReason, Role
from opengyre.core.records import Call, Sampling, VersionSpan


class DoorRecord(Struct, frozen=True, kw_only=True):
    """An open door. Made by proxy; read by the proxy that takes over."""

    execution_id: str
    key_digest: bytes
    """Of the execution's key, which itself is stored nowhere."""
    harness: str
    seed: int
    temperature: float


class Tallies(Struct, frozen=True, kw_only=True):
    """A door's counts that no call tells. Made by proxy; read by the proxy that takes over."""

    started: int = 0
    """Generations begun, failed ones included."""
    failed_calls: int = 0
    last_failed: bool = False
    refused_calls: int = 0
    repeated_calls: int = 0
    context_limit_hit: bool = False


class TurnRecord(Struct, frozen=True, array_like=True):
    """A turn that a call's prompt added to the history."""

    key: bytes
    thinking: str
    length: int
    """Of the prompt up to here, in tokens."""


class Trace(Struct, frozen=True, kw_only=True):
    """Where a call hangs. Made by proxy; read by the proxy that takes over."""

    number: int
    """Generations of the execution that were begun before: makes the seed."""
    digest: bytes
    """Of the request; equal for its retries."""
    session: str
    """That the request named; may be empty."""
    after_call: str | None
    after_place: int
    """The node of the history that the prompt goes on from, by its name."""
    turns: list[TurnRecord]


class Told(Struct, frozen=True, kw_only=True):
    """An answer as the harness gets it. Made by proxy; read by the proxy that takes over."""

    message: str
    """JSON of the message, ids of tool calls included."""
    stopped: bool
    faithful: bool
    malformed_calls: int
    summary: bool
    thinking_tokens: int = 0


class Begun(Struct, frozen=True, kw_only=True):
    """A call whose generation began. Made by proxy; read by the proxy that takes over."""

    call_id: str
    execution_id: str
    dialect: str
    tool_prefix: str
    parent_id: str | None
    reused: int
    suffix_ids: list[int]
    fork: ForkReason | None
    role: Role
    role_why: str
    sampling: Sampling
    started_at: float
    trace: Trace


class Progress(Struct, frozen=True, kw_only=True):
    """Tokens of an unfinished call that come after those of its earlier records.

    Made by proxy; read by the proxy that takes over.
    """

    token_ids: list[int]
    logprobs: list[float]
    versions: list[VersionSpan]
    """Of these tokens; positions count from the first of them."""
    moves_with_kv: int = 0
    moves_recomputed: int = 0
    cells: list[int] = []
    """That the call was given to since the record before, in order."""


class RecordedCall(Struct, frozen=True, kw_only=True):
    """A call that is durable. Made by store; read by proxy."""

    call: Call
    trace: Trace
    told: Told | None
    """None when there is nothing to tell: the harness had given it up."""
    delivered: bool
    """Its answer went out whole, or there is none."""


class UnfinishedCall(Struct, frozen=True, kw_only=True):
    """A call that was begun and is not recorded. Made by store; read by proxy."""

    begun: Begun
    progress: list[Progress]


class OpenDoor(Struct, frozen=True, kw_only=True):
    """All that is known of a door that nobody closed. Made by store; read by proxy."""

    door: DoorRecord
    tallies: Tallies
    calls: list[RecordedCall]
    """In order of recording."""
    unfinished: list[UnfinishedCall]
    """In order of their numbers."""
