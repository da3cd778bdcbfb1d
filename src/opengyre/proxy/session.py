"""A request's way to its answer: match, generate, record. Streaming comes after.

Invariant: nothing of an answer leaves before its call is durable; the same request again, while
its answer is in the making or has not been delivered, gets that very answer.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opengyre.core.errors import EngineError, StoreError
from opengyre.core.protocols import Clock, Generator, IdSource, Recorder
from opengyre.core.reasons import FinishReason, Role
from opengyre.core.records import Call, GenerateRequest, Sampling
from opengyre.proxy.answers import Answer, Asked, Job, Spoken
from opengyre.proxy.executions import SUMMARIES, Door, Executions, restarting
from opengyre.proxy.families.base import Family, Reply
from opengyre.proxy.keeping import Keeper
from opengyre.proxy.messages import Message, Tool, ToolCall
from opengyre.proxy.refusals import Kind, Refusal, context_full, too_many_calls
from opengyre.proxy.thinking import thinking_tokens
from opengyre.proxy.turns import Turns
from opengyre.proxy.work import Work, taken_over
from opengyre.tree.roles import CallMarks

log = logging.getLogger(__name__)

NOTHING = Spoken(
    Message("assistant"), stopped=False, faithful=True, malformed_calls=0, summary=False
)
"""What is told of a call that was given up: there is nobody to tell."""
SESSION = "x-session-id"
"""OpenCode's name of a conversation: all that tells what its compactions sum up."""
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
    max_live_calls: int = 256
    """Calls of one execution at once; real programs were seen to have tens."""
    progress_tokens: int = 64
    """A death of the proxy costs at most so many tokens of a call, which are then sampled again."""
    progress_s: float = 1.0
    """Tokens that have waited so long are written down with the next ones, however few they are."""
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
        self._generator = generator
        self._keeper = Keeper(recorder, clock, limits.progress_tokens, limits.progress_s)
        self._family, self.limits = family, limits
        self.clock, self._ids = clock, ids
        self._classify = classify
        self.turns = Turns(clock)

    def take_over(self, executions: Executions) -> None:
        """Go on with what another process left: its unread answers, its unfinished calls."""
        for door in executions.doors:
            for digest, answer in door.unread:
                self._know(door, digest, answer)
            for unfinished, plan in door.unfinished:
                self._begin(taken_over(door, unfinished, plan), begun_before=True)
            door.unread, door.unfinished = [], []

    def count(self, door: Door, asked: Asked) -> int:
        """Prompt tokens that this request would have. Raises UnreadError."""
        return len(door.history.plan(asked.conversation, may_read=False).prompt_ids)

    def answer(self, door: Door, asked: Asked, origin: Origin) -> Job:
        """The job that answers this request: a new one, or the one that its retry belongs to.

        Raises Refusal when the prompt does not fit, or the door was shut while it was read;
        UnreadError when too little of it was read.
        """
        door.check_open()
        job = door.jobs.get(origin.digest)
        if job is None or job.useless:
            job = self._begin(self._prepare(door, asked, origin))
        else:
            door.counts.repeated_calls += 1
            door.counted()
        job.ask(asked.conversation.tools)
        return job

    def notice(self, door: Door, asked: Asked, headers: dict[str, str]) -> None:
        """A call that will not begin: later ones of its session may still ask what it was."""
        self._classified(door, asked, headers)

    def delivered(self, door: Door, job: Job) -> None:
        """The whole answer went out: the same request again is a new one."""
        if door.jobs.get(job.digest) is not job:
            return
        del door.jobs[job.digest]
        failed_before = door.counts.last_failed
        door.counts.replied()
        self._keeper.delivered(door, job.call_id)
        if failed_before:
            door.counted()

    def fault(self, door: Door, error: Exception) -> Refusal:
        """Count an error of ours that no call's record shows; returns what to tell of it."""
        door.counts.failed()
        door.counted()
        return error if isinstance(error, Refusal) else failure(error)

    def _begin(self, work: Work, *, begun_before: bool = False) -> Job:
        door = work.door
        if not begun_before:
            self._keeper.begun(work)
            self._was_read(work)
        elif (older := door.jobs.get(work.digest)) is not None:
            older.stop()  # its harness had left it already
        job = Job(work.call_id, len(work.request.prompt_ids), work.digest)
        door.history.begin(work.plan)
        door.jobs[work.digest] = job
        door.live.add(job)
        job.start(lambda: self._work(work, job), lambda job: self._over(work, job))
        return job

    def _was_read(self, work: Work) -> None:
        """Whoever goes on from an answer has got it, whatever the connection said."""
        node = work.plan.node
        for job in list(work.door.jobs.values()):
            if node.reply and job.call_id == node.call_id:
                self.delivered(work.door, job)

    def _know(self, door: Door, digest: bytes, answer: Answer) -> None:
        async def known() -> Answer:
            return answer

        job = Job(answer.call_id, answer.prompt_tokens, digest)
        job.complete = True
        door.jobs[digest] = job
        job.start(known, lambda _job: None)

    def _over(self, work: Work, job: Job) -> None:
        door = work.door
        door.history.end(work.plan)
        door.live.discard(job)
        if job.useless and door.jobs.get(work.digest) is job:
            del door.jobs[work.digest]

    def _prepare(self, door: Door, asked: Asked, origin: Origin) -> Work:
        if len(door.live) >= self.limits.max_live_calls:
            raise too_many_calls(len(door.live))
        role, why = self._classified(door, asked, origin.headers)
        fresh = role is Role.SUB_AGENT and not asked.conversation.answered
        plan = door.history.plan(
            asked.conversation, summary=role in SUMMARIES, fresh=fresh, may_read=False
        )
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
        number, door.started = door.started, door.started + 1
        request = GenerateRequest(
            request_id=self._ids.new("call"),
            execution_id=door.execution_id,
            prompt_ids=plan.prompt_ids,
            sampling=sampling,
        )
        return Work(
            door=door,
            plan=plan,
            number=number,
            digest=origin.digest,
            dialect=origin.dialect,
            tool_prefix=origin.tool_prefix,
            session=origin.headers.get(SESSION, ""),
            role=role,
            role_why=why,
            request=request,
            started_at=self.clock.now(),
        )

    def _classified(self, door: Door, asked: Asked, headers: dict[str, str]) -> tuple[Role, str]:
        """A compaction may bear no mark but what it shares with earlier calls."""
        earlier = door.role_of(kin(asked, headers))
        role, why = self._classify(door.harness, marks(asked, headers, earlier))
        door.began(headers.get(SESSION, ""), role)
        return role, why

    async def _work(self, work: Work, job: Job) -> Answer:
        """Every way out leaves the call recorded, failed and counted, or to another process."""
        try:
            tools = await job.wanted()
            await self._generate(work)
            job.complete = True
            return await self._record(work, tools)
        except asyncio.CancelledError:
            if work.door.suspended:
                raise self._suspended(work) from None
            if not job.complete:
                await self._abort(work)
            raise
        except Exception as error:
            raise self._failed(work, error) from error

    def _suspended(self, work: Work) -> Refusal:
        self._keeper.progressed(work, all_of_it=True)
        return restarting()

    def _failed(self, work: Work, error: Exception) -> Refusal:
        """Count it; whoever waits gets a refusal, whatever went wrong."""
        if not work.recorded:
            self._keeper.dropped(work)
        return self.fault(work.door, error)

    async def _abort(self, work: Work) -> None:
        """The harness gave up: what there is of the answer is recorded all the same."""
        work.got.finish = FinishReason.ABORT
        try:
            await self._record(work, ())
        except Exception as error:  # noqa: BLE001 — nobody waits: counted and logged
            self._failed(work, error)

    async def _generate(self, work: Work) -> None:
        request = work.remaining()
        if request is None:
            work.got.finish = work.ended()
            return
        stream = self._generator.generate(request)
        try:
            async for chunk in stream:
                work.add(chunk)
                if chunk.finish is not None:
                    break
                self._keeper.progressed(work)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if work.got.finish in {None, FinishReason.ABORT}:
            raise EngineError(f"request {request.request_id} ended without an answer")

    async def _record(self, work: Work, tools: tuple[Tool, ...]) -> Answer:
        """Make the call durable, then known to later requests; returns what the harness is told.

        An answer that we cannot read is recorded before that is an error.
        """
        door = work.door
        async with door.recording:
            async with self.turns.one():
                call = work.call(self.clock.now())
                spoken = error = None
                if call.finish is not FinishReason.ABORT:
                    try:
                        spoken = self._speak(call, tools, work.tool_prefix)
                    except Exception as found:  # noqa: BLE001 — raised below, after the record
                        error = found
            await self._keeper.record(work, call, spoken)
            async with self.turns.one():
                door.learn(work.plan, call, spoken)
        if error is not None:
            raise error
        return Answer.of(call, spoken or NOTHING)

    def _speak(self, call: Call, tools: tuple[Tool, ...], tool_prefix: str) -> Spoken:
        reply = self._family.parse(call.output_ids, tools)
        return Spoken(
            message=self._message(reply, tool_prefix),
            stopped=bool(call.output_ids) and call.output_ids[-1] in self._family.stop_ids,
            faithful=reply.faithful,
            malformed_calls=reply.malformed_calls,
            summary=call.role in SUMMARIES,
            thinking_tokens=thinking_tokens(self._family.decode, call.output_ids, reply.thinking),
        )

    def _message(self, reply: Reply, prefix: str) -> Message:
        calls = tuple(
            ToolCall(self._tool_id(prefix), call.name, dict(call.arguments)) for call in reply.calls
        )
        return Message("assistant", reply.text, reply.thinking, calls)

    def _tool_id(self, prefix: str) -> str:
        return f"{prefix}_{self._ids.new('tool').removeprefix('tool-')}"


def kin(asked: Asked, headers: dict[str, str]) -> Iterator[str]:
    """Names that this request shares with earlier calls, the surest first."""
    if SESSION in headers:
        yield headers[SESSION]
    yield from asked.conversation.call_ids()


def marks(asked: Asked, headers: dict[str, str], earlier: Role | None) -> CallMarks:
    """What a request tells about its sender."""
    conversation = asked.conversation
    return CallMarks(
        headers=headers,
        system=conversation.system,
        last_user_text=conversation.last_user_text(),
        tool_names=[tool.name for tool in conversation.tools],
        server_tools=list(asked.server_tools),
        output_format=asked.output_format,
        earlier=earlier,
    )


def failure(error: Exception) -> Refusal:
    """The answer to a call that went wrong through our fault; a fault nobody foresaw is logged."""
    if isinstance(error, EngineError | StoreError):
        return Refusal(Kind.FAILED, f"the policy could not answer: {error}")
    log.error("a call failed", exc_info=error)
    what = f"{type(error).__name__}: {error}"
    return Refusal(Kind.FAILED, f"the policy could not answer: a fault of the proxy ({what})")


def call_seed(execution_seed: int, index: int) -> int:
    """A call's own seed: the same run draws the same tokens again."""
    digest = hashlib.blake2b(f"{execution_seed}:{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
