"""One call between its plan and its record, and the tokens that it has so far.

Invariant: tokens are in the order of sampling, and every one of them is in exactly one version span.
"""

from dataclasses import dataclass, field

import msgspec

from opengyre.core.journal import Begun, Progress, Trace, TurnRecord, UnfinishedCall
from opengyre.core.reasons import FinishReason, Role
from opengyre.core.records import Call, GenerateRequest, TokenChunk, VersionSpan
from opengyre.core.tokens import TokenIds
from opengyre.proxy.executions import Door
from opengyre.proxy.history import Plan


@dataclass
class Generated:
    """Tokens as they come in."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[VersionSpan] = field(default_factory=list)
    finish: FinishReason | None = None
    moves_with_kv: int = 0
    moves_recomputed: int = 0
    cells: list[int] = field(default_factory=list)
    """That the call was given to, in order."""

    def add(self, chunk: TokenChunk) -> None:
        """Take one chunk."""
        self.finish = chunk.finish
        span = VersionSpan(chunk.version, 0, len(chunk.token_ids))
        self.go_on(
            Progress(
                token_ids=chunk.token_ids,
                logprobs=chunk.logprobs,
                versions=[span],
                moves_with_kv=chunk.moves_with_kv,
                moves_recomputed=chunk.moves_recomputed,
                cells=chunk.cells,
            )
        )

    def go_on(self, progress: Progress) -> None:
        """Take tokens, maybe of several versions; neighbours of one version become one span."""
        before = len(self.ids)
        self.ids += progress.token_ids
        self.logprobs += progress.logprobs
        self.moves_with_kv += progress.moves_with_kv
        self.moves_recomputed += progress.moves_recomputed
        self.cells += progress.cells
        for span in progress.versions:
            start, end = before + span.start, before + span.end
            if start == end:
                continue
            if self.versions and self.versions[-1].version == span.version:
                start = self.versions.pop().start
            self.versions.append(VersionSpan(span.version, start, end))


@dataclass(kw_only=True)
class Work:
    """One call in the making."""

    door: Door
    plan: Plan
    number: int
    """Generations of the execution that were begun before."""
    digest: bytes
    dialect: str
    tool_prefix: str
    """How its tool calls' ids start."""
    session: str
    """That the request named; may be empty."""
    role: Role
    role_why: str
    request: GenerateRequest
    """As it was asked for first."""
    started_at: float
    got: Generated = field(default_factory=Generated)
    unsaved: Generated = field(default_factory=Generated)
    """Of got, what the journal has not."""
    saved_at: float = 0.0
    recorded: bool = False

    @property
    def call_id(self) -> str:
        return self.request.request_id

    def add(self, chunk: TokenChunk) -> None:
        """Take one chunk."""
        self.got.add(chunk)
        if self.door.journal is not None:
            self.unsaved.add(chunk)

    def take_unsaved(self, now: float) -> Progress | None:
        """For the journal, once; None when there is nothing."""
        new, self.unsaved, self.saved_at = self.unsaved, Generated(), now
        if not new.ids and not new.moves_with_kv and not new.moves_recomputed:
            return None
        return Progress(
            token_ids=new.ids,
            logprobs=new.logprobs,
            versions=new.versions,
            moves_with_kv=new.moves_with_kv,
            moves_recomputed=new.moves_recomputed,
            cells=new.cells,
        )

    def remaining(self) -> GenerateRequest | None:
        """What is still to be asked for; None when the tokens are all there."""
        ids, sampling = self.got.ids, self.request.sampling
        if not ids:
            return self.request
        if ids[-1] in sampling.stop_ids or len(ids) >= sampling.max_new_tokens:
            return None
        prompt = TokenIds(self.request.prompt_ids) + ids
        return msgspec.structs.replace(self.request, prompt_ids=prompt, first_index=len(ids))

    def ended(self) -> FinishReason:
        """Why nothing is still to be asked for."""
        stopped = self.got.ids[-1] in self.request.sampling.stop_ids
        return FinishReason.STOP if stopped else FinishReason.LENGTH

    def call(self, ended_at: float) -> Call:
        """Its record, as the next one of its execution."""
        got = self.got
        assert got.finish is not None
        return Call(
            call_id=self.call_id,
            execution_id=self.door.execution_id,
            index=self.door.counts.calls,
            dialect=self.dialect,
            parent_id=self.plan.parent_id,
            reused=self.plan.reused,
            suffix_ids=self.plan.suffix_ids,
            output_ids=got.ids,
            output_logprobs=got.logprobs,
            versions=got.versions,
            finish=got.finish,
            role=self.role,
            role_why=self.role_why,
            fork=self.plan.fork,
            started_at=self.started_at,
            ended_at=ended_at,
            moves_with_kv=got.moves_with_kv,
            moves_recomputed=got.moves_recomputed,
            cells=got.cells,
        )

    def trace(self) -> Trace:
        """Where it hangs."""
        return Trace(
            number=self.number,
            digest=self.digest,
            session=self.session,
            after_call=self.plan.node.call_id,
            after_place=self.plan.node.place,
            turns=[TurnRecord(step.key, step.thinking, step.length) for step in self.plan.steps],
        )

    def begun(self) -> Begun:
        """What another process needs to go on with it."""
        return Begun(
            call_id=self.call_id,
            execution_id=self.door.execution_id,
            dialect=self.dialect,
            tool_prefix=self.tool_prefix,
            parent_id=self.plan.parent_id,
            reused=self.plan.reused,
            suffix_ids=self.plan.suffix_ids,
            fork=self.plan.fork,
            role=self.role,
            role_why=self.role_why,
            sampling=self.request.sampling,
            started_at=self.started_at,
            trace=self.trace(),
        )


def taken_over(door: Door, unfinished: UnfinishedCall, plan: Plan) -> Work:
    """A call that another process began, with the tokens that it left."""
    begun = unfinished.begun
    request = GenerateRequest(
        request_id=begun.call_id,
        execution_id=begun.execution_id,
        prompt_ids=plan.prompt_ids,
        sampling=begun.sampling,
    )
    work = Work(
        door=door,
        plan=plan,
        number=begun.trace.number,
        digest=begun.trace.digest,
        dialect=begun.dialect,
        tool_prefix=begun.tool_prefix,
        session=begun.trace.session,
        role=begun.role,
        role_why=begun.role_why,
        request=request,
        started_at=begun.started_at,
    )
    for progress in unfinished.progress:
        work.got.go_on(progress)
    return work
