"""A request's way to its answer: match, generate, record. Streaming comes after.

Invariant: nothing of an answer leaves before its call is durable; the same request again, while
its answer is in the making or has not been delivered, gets that very answer.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from opengyre.core.errors import EngineError, StoreError
from opengyre.core.protocols import Clock, Generator, IdSource, Recorder
from opengyre.core.reasons import FinishReason, Role
from opengyre.core.records import (
    Call,
    GenerateRequest,
    Sampling,
    TokenChunk,
    VersionSpan,
)
from opengyre.proxy.answers import Answer, Asked, Job
from opengyre.proxy.executions import Door
from opengyre.proxy.families.base import Family, Reply
from opengyre.proxy.history import Node, Plan
from opengyre.proxy.messages import Message, Tool, ToolCall
from opengyre.proxy.refusals import Kind, Refusal, context_full
from opengyre.tree.roles import CallMarks

SUMMARIES = frozenset({Role.MAIN_SUMMARY, Role.SUB_AGENT_SUMMARY})
Classify = Callable[[str, CallMarks], tuple[Role, str]]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a call may cost."""

    context_tokens: int
    """Longest prompt + answer."""
    max_new_tokens: int
    """Longest answer."""
    max_body_bytes: int
    """Longest request body."""
    ping_s: float = 10.0
    """Seconds between signs of life on a waiting stream; harnesses were seen to bear 45."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a request comes from, apart from what it says."""

    dialect: str
    tool_prefix: str
    """How this dialect's tool-call ids start."""
    digest: bytes
    """Of the request; equal for retries."""
    headers: dict[str, str]


@dataclass
class Generated:
    """Tokens as they come in."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[VersionSpan] = field(default_factory=list)
    finish: FinishReason | None = None
    moves_with_kv: int = 0
    moves_recomputed: int = 0

    def add(self, chunk: TokenChunk) -> None:
        """Take one chunk; neighbours of one version become one span."""
        start = len(self.ids)
        self.ids += chunk.token_ids
        self.logprobs += chunk.logprobs
        self.finish = chunk.finish
        self.moves_with_kv += chunk.moves_with_kv
        self.moves_recomputed += chunk.moves_recomputed
        if not chunk.token_ids:
            return
        if self.versions and self.versions[-1].version == chunk.version:
            start = self.versions.pop().start
        self.versions.append(VersionSpan(chunk.version, start, len(self.ids)))


@dataclass(frozen=True)
class Work:
    """One call between its plan and its record."""

    door: Door
    plan: Plan
    origin: Origin
    role: Role
    role_why: str
    request: GenerateRequest
    started_at: float
    tools: tuple[Tool, ...]


class Sessions:
    """Answers requests of all executions; what differs between them is in their doors."""

    def __init__(  # noqa: PLR0913 — passed on from build_app
        self,
        generator: Generator,
        recorder: Recorder,
        family: Family,
        limits: Limits,
        clock: Clock,
        ids: IdSource,
        classify: Classify,
    ) -> None:
        self._generator, self._recorder = generator, recorder
        self._family, self.limits = family, limits
        self.clock, self._ids = clock, ids
        self._classify = classify

    def count(self, door: Door, asked: Asked) -> int:
        """Prompt tokens that this request would have."""
        return len(door.history.plan(asked.conversation).prompt_ids)

    def answer(self, door: Door, asked: Asked, origin: Origin) -> Job:
        """The job that answers this request: a new one, or the one that its retry belongs to.

        Raises Refusal when the prompt does not fit.
        """
        job = door.jobs.get(origin.digest)
        if job is not None and not job.useless:
            door.counts.repeated_calls += 1
            return job
        work = self._prepare(door, asked, origin)
        door.history.begin(work.plan)
        job = Job(work.request.request_id, len(work.request.prompt_ids))
        door.jobs[origin.digest] = job
        door.live.add(job)
        job.start(self._work(work, job), lambda job: self._over(work, job))
        return job

    def _over(self, work: Work, job: Job) -> None:
        door = work.door
        door.history.end(work.plan)
        door.live.discard(job)
        if job.useless and door.jobs.get(work.origin.digest) is job:
            del door.jobs[work.origin.digest]

    def delivered(self, door: Door, digest: bytes) -> None:
        """The whole answer went out: the same request again is a new one."""
        if door.jobs.pop(digest, None) is not None:
            door.counts.complete_replies += 1

    def _prepare(self, door: Door, asked: Asked, origin: Origin) -> Work:
        role, why = self._classify(door.harness, marks(asked, origin.headers))
        plan = door.history.plan(asked.conversation, summary=role in SUMMARIES)
        room = self.limits.context_tokens - len(plan.prompt_ids)
        if room <= 0:
            raise context_full(len(plan.prompt_ids), self.limits.context_tokens)
        wanted = asked.max_tokens or self.limits.max_new_tokens
        sampling = Sampling(
            max_new_tokens=min(wanted, self.limits.max_new_tokens, room),
            stop_ids=self._family.stop_ids,
            seed=call_seed(door.seed, door.started),
            temperature=door.temperature,
        )
        door.started += 1
        request = GenerateRequest(
            request_id=self._ids.new("call"),
            execution_id=door.execution_id,
            prompt_ids=plan.prompt_ids,
            sampling=sampling,
        )
        tools = asked.conversation.tools
        return Work(door, plan, origin, role, why, request, self.clock.now(), tools)

    async def _work(self, work: Work, job: Job) -> Answer:
        got = Generated()
        try:
            await self._generate(work.request, got)
            job.complete = True
            return await self._record(work, got)
        except asyncio.CancelledError:
            await self._abort(work, got)
            raise
        except (EngineError, StoreError) as error:
            work.door.counts.failed_calls += 1
            raise Refusal(Kind.FAILED, f"the policy could not answer: {error}") from error

    async def _abort(self, work: Work, got: Generated) -> None:
        """The harness gave up: what there is of the answer is recorded all the same."""
        work.door.counts.aborted_calls += 1
        got.finish = FinishReason.ABORT
        try:
            await self._record(work, got)
        except StoreError:
            work.door.counts.failed_calls += 1

    async def _generate(self, request: GenerateRequest, got: Generated) -> None:
        stream = self._generator.generate(request)
        try:
            async for chunk in stream:
                got.add(chunk)
                if got.finish is not None:
                    break
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if got.finish in {None, FinishReason.ABORT}:
            raise EngineError(f"request {request.request_id} ended without an answer")

    async def _record(self, work: Work, got: Generated) -> Answer:
        """Make the call durable, then known to later requests; returns what the harness is told."""
        door = work.door
        async with door.recording:
            call = self._call(work, got)
            await self._recorder.record(call)
            self._count(door, call)
            prompt = door.history.keep(work.plan, call.call_id, call.output_ids)
            reply = self._family.parse(call.output_ids, work.tools)
            message = self._message(reply, work.origin.tool_prefix)
            if call.finish is not FinishReason.ABORT:
                self._tell(door, call, prompt, reply, message)
        return Answer(
            call_id=call.call_id,
            message=message,
            finish=call.finish,
            prompt_tokens=len(work.request.prompt_ids),
            output_tokens=len(call.output_ids),
        )

    def _tell(self, door: Door, call: Call, prompt: Node, reply: Reply, message: Message) -> None:
        stopped = bool(call.output_ids) and call.output_ids[-1] in self._family.stop_ids
        door.history.keep_reply(
            prompt, call.call_id, message, stopped=stopped, faithful=reply.faithful
        )
        door.counts.malformed_tool_calls += reply.malformed_calls
        if call.role in SUMMARIES:
            door.history.keep_summary(message.text)

    def _call(self, work: Work, got: Generated) -> Call:
        assert got.finish is not None
        return Call(
            call_id=work.request.request_id,
            execution_id=work.door.execution_id,
            index=work.door.counts.calls,
            dialect=work.origin.dialect,
            parent_id=work.plan.parent_id,
            reused=work.plan.reused,
            suffix_ids=work.plan.suffix_ids,
            output_ids=got.ids,
            output_logprobs=got.logprobs,
            versions=got.versions,
            finish=got.finish,
            role=work.role,
            role_why=work.role_why,
            fork=work.plan.fork,
            started_at=work.started_at,
            ended_at=self.clock.now(),
            moves_with_kv=got.moves_with_kv,
            moves_recomputed=got.moves_recomputed,
        )

    def _count(self, door: Door, call: Call) -> None:
        counts = door.counts
        counts.calls += 1
        counts.moves_with_kv += call.moves_with_kv
        counts.moves_recomputed += call.moves_recomputed
        counts.prompt_tokens += call.reused + len(call.suffix_ids)
        counts.reused_tokens += call.reused
        counts.sampled_tokens += len(call.output_ids)
        if call.fork is not None:
            counts.forks[call.fork.value] += 1

    def _message(self, reply: Reply, prefix: str) -> Message:
        calls = tuple(
            ToolCall(self._tool_id(prefix), call.name, dict(call.arguments)) for call in reply.calls
        )
        return Message("assistant", reply.text, reply.thinking, calls)

    def _tool_id(self, prefix: str) -> str:
        return f"{prefix}_{self._ids.new('tool').removeprefix('tool-')}"


def marks(asked: Asked, headers: dict[str, str]) -> CallMarks:
    """What a request tells about its sender."""
    conversation = asked.conversation
    return CallMarks(
        headers=headers,
        system=conversation.system,
        last_user_text=conversation.last_user_text(),
        tool_names=[tool.name for tool in conversation.tools],
        server_tools=list(asked.server_tools),
        output_format=asked.output_format,
    )


def call_seed(execution_seed: int, index: int) -> int:
    """A call's own seed: the same run draws the same tokens again."""
    digest = hashlib.blake2b(f"{execution_seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
