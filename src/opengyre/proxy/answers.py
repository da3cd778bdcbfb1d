"""A request in one vocabulary, its answer, and the job that makes the one from the other.

Invariant: a job whose tokens are complete is recorded whatever becomes of its listeners; before
that, it is stopped when its last listener leaves.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from opengyre.core.reasons import FinishReason
from opengyre.proxy.messages import Conversation, Json, Message


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
class Answer:
    """A recorded call as the harness is told of it."""

    call_id: str
    message: Message
    finish: FinishReason
    prompt_tokens: int
    output_tokens: int
    thinking_tokens: int = 0
    """Of output_tokens, those up to the end of the thinking."""


class Job:
    """One answer in the making, shared by the request and its retries."""

    def __init__(self, call_id: str, prompt_tokens: int) -> None:
        self.call_id = call_id
        self.prompt_tokens = prompt_tokens
        self.complete = False
        """All tokens are there: from now on nothing stops it."""
        self._listeners = 0
        self._stopping = False
        self._task: asyncio.Future[Answer] | None = None

    def start(self, work: Coroutine[None, None, Answer], done: Callable[["Job"], None]) -> None:
        """Begin; done is called once it is over, however it ends."""
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(lambda _task: done(self))

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
            self.task.cancel()

    async def finished(self) -> None:
        """Return once it is over, however it ended."""
        await asyncio.wait([self.task])
