"""Makes calls durable. Invariant: where a door has a journal, whatever a call has become is in it
before anybody is told, and its tokens on the way at most Limits.progress_tokens behind.
"""

import json
from dataclasses import asdict

from opengyre.core.journal import Told
from opengyre.core.protocols import Clock, Recorder
from opengyre.core.records import Call
from opengyre.proxy.answers import Spoken
from opengyre.proxy.executions import Door
from opengyre.proxy.messages import Message, ToolCall
from opengyre.proxy.work import Work


class Keeper:
    """Writes to the door's journal, or, for a door that ends with this process, calls only."""

    def __init__(
        self, recorder: Recorder, clock: Clock, progress_tokens: int, progress_s: float
    ) -> None:
        self._recorder, self._clock = recorder, clock
        self._tokens, self._seconds = progress_tokens, progress_s

    def begun(self, work: Work) -> None:
        """Its generation begins."""
        work.saved_at = self._clock.now()
        if (journal := work.door.journal) is not None:
            journal.begun(work.begun())

    def progressed(self, work: Work, *, all_of_it: bool = False) -> None:
        """It has new tokens; they are written down now and then, or all at once."""
        if (journal := work.door.journal) is None:
            return
        now, waiting = self._clock.now(), len(work.unsaved.ids)
        late = now - work.saved_at >= self._seconds
        if not (all_of_it or late or waiting >= self._tokens):
            return
        if (progress := work.take_unsaved(now)) is not None:
            journal.progressed(work.door.execution_id, work.call_id, progress)

    def dropped(self, work: Work) -> None:
        """It failed."""
        if (journal := work.door.journal) is not None:
            journal.dropped(work.door.execution_id, work.call_id)

    async def record(self, work: Work, call: Call, spoken: Spoken | None) -> None:
        """Return once the call would survive a crash. Raises StoreError."""
        journal = work.door.journal
        if journal is None:
            await self._recorder.record(call)
        else:
            told = None if spoken is None else written(spoken)
            await journal.finished(call, work.trace(), told)
        work.recorded = True

    def delivered(self, door: Door, call_id: str) -> None:
        """Its answer went out whole."""
        if door.journal is not None:
            door.journal.delivered(door.execution_id, call_id)


def written(spoken: Spoken) -> Told:
    """As a journal keeps it; JSON, since arguments may hold integers of any size."""
    return Told(
        message=json.dumps(asdict(spoken.message)),
        stopped=spoken.stopped,
        faithful=spoken.faithful,
        malformed_calls=spoken.malformed_calls,
        thinking_tokens=spoken.thinking_tokens,
        summary=spoken.summary,
    )


def read(told: Told) -> Spoken:
    """The inverse of written."""
    fields = json.loads(told.message)
    calls = tuple(ToolCall(**call) for call in fields.pop("calls"))
    return Spoken(
        message=Message(**fields, calls=calls),
        stopped=told.stopped,
        faithful=told.faithful,
        malformed_calls=told.malformed_calls,
        thinking_tokens=told.thinking_tokens,
        summary=told.summary,
    )
