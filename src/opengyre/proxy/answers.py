"""A request in one vocabulary, its answer, and the job that makes the one from the other.

Invariant: a job whose tokens are complete is recorded whatever becomes of its listeners; before
that, it is stopped when its last listener leaves.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from opengyre.core.reasons import FinishReason
from opengyre.core.records import Call
from opengyre.proxy.messages import Conversation, Json, Message, Tool


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, whatever dialect it came in."""

    conversation: Conversation
    model: str
    """Any name is served; it is echoed."""
    stream: bool = False
    max_tokens: int | None = None
    server_tools: tuple[str, ...] = ()
    not_applied: tuple[str, ...] = ()
    """Parameters that were asked for and that the run decides instead."""
    calls_allowed: bool = True
    """False: the client wants no tool calls; the tools are not shown then."""
    thinking_shown: bool = True
    """False: the client wants thinking without its text."""
    sealed_thinking: bool = False
    """True: the client wants thinking in a form that it need not understand, too."""
    echo: dict[str, Json] = field(default_factory=dict)
    """What this dialect's answers repeat of the request."""
    output_format: str | None = None
    include_usage: bool = True
    """Whether a stream ends with usage (an option of one dialect)."""
    custom_tools: frozenset[str] = frozenset()
    """Tools that take one free text, which the policy sees as an argument named input."""
    namespaces: dict[str, tuple[str, str]] = field(default_factory=dict)
    """(namespace, name) by the name that the policy sees."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a harness is told of a call, and how well it stands for the call's tokens."""

    message: Message
    stopped: bool
    """The answer ends with a stop token."""
    faithful: bool
    """Rendering the message again can give the answer's tokens."""
    malformed_calls: int
    summary: bool
    """It answers a request for a compaction."""
    thinking_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A recorded call as the harness is told of it."""

    call_id: str
    message: Message
    finish: FinishReason
    prompt_tokens: int
    output_tokens: int
    thinking_tokens: int = 0
    """Of output_tokens, those up to the end of the thinking."""

    @staticmethod
    def of(call: Call, spoken: Spoken) -> "Answer":
        """What is told of a recorded call."""
        return Answer(
            call_id=call.call_id,
            message=spoken.message,
            finish=call.finish,
            prompt_tokens=call.reused + len(call.suffix_ids),
            output_tokens=len(call.output_ids),
            thinking_tokens=spoken.thinking_tokens,
        )


class Job:
    """One answer in the making, shared by the request and its retries."""

    def __init__(self, call_id: str, prompt_tokens: int, digest: bytes) -> None:
        self.call_id = call_id
        self.prompt_tokens = prompt_tokens
        self.digest = digest
        """Of the request."""
        self.complete = False
        """All tokens are there: from now on nothing stops it."""
        self._tools: tuple[Tool, ...] = ()
        self._wanted = asyncio.Event()
        self._listeners = 0
        self._stopping = False
        self._begun = False
        self._task: asyncio.Future[Answer] | None = None

    def start(
        self, work: Callable[[], Coroutine[None, None, Answer]], done: Callable[["Job"], None]
    ) -> None:
        """Begin; done is called once it is over, however it ends."""
        self._task = asyncio.ensure_future(self._run(work))
        self._task.add_done_callback(lambda _task: done(self))

    async def _run(self, work: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
        """The work always gets to its first wait, so that it can record that it was stopped."""
        self._begun = True
        if self._stopping:
            self.task.cancel()
        return await work()

    @property
    def task(self) -> "asyncio.Future[Answer]":
        """Ends with the answer, or raises Refusal; cancelled when it was stopped."""
        assert self._task is not None
        return self._task

    @property
    def useless(self) -> bool:
        """No answer will come of it, or none came."""
        failed = self.task.done() and (self.task.cancelled() or self.task.exception() is not None)
        return self._stopping or failed

    def ask(self, tools: tuple[Tool, ...]) -> None:
        """A request for it, with the tools that its prompt shows; all of them ask the same."""
        self._tools = tools
        self._wanted.set()

    async def wanted(self) -> tuple[Tool, ...]:
        """The tools; a call that another process began waits here until it is asked for again."""
        await self._wanted.wait()
        return self._tools

    def join(self) -> None:
        """One more wants the answer."""
        self._listeners += 1

    def leave(self) -> None:
        """One does not any more."""
        self._listeners -= 1
        if self._listeners == 0:
            self.stop()

    def stop(self) -> None:
        """Cancel the generation if it is still going on."""
        if not self.complete and not self.task.done():
            self._stopping = True
            if self._begun:
                self.task.cancel()

    async def finished(self) -> None:
        """Return once it is over, however it ended."""
        await asyncio.wait([self.task])
