"""Many executions at once behind one proxy on one core: do all end, what do they cost, what waits?

Invariant: every execution has its own conversation and text, and all of them have a call in flight
at once; the proxy's process may use one core only, and the clients none of it where there is another.
Calls begin at random times, as those of programs that know nothing of one another do; an answer takes
longer than all later ones need to begin.
"""

import asyncio
import http
import os
import random
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
from msgspec import Struct

from opengyre.app.bench.door import KEY, DoorSettings
from opengyre.app.bench.talk import DoorProcess, Talk, corpus
from opengyre.core.errors import UserError
from opengyre.core.protocols import Clock

CHARS_PER_TOKEN = 4
"""Of source code, about; the table tells what it was."""
CALL_S = 0.012
"""Seconds between two calls on average: one core is busy for most of it."""
TOKEN_S = 1e-5
"""More of that for each token that a first call brings."""
OVERLAP = 2.5
"""An answer's time over the time in which all later calls begin: even when a proxy falls behind, the
first of them is not answered before the last has begun."""
RESULT_CHARS = 800
"""Of each tool result after the first call."""
OFFSET = 997
"""Characters between the beginnings of two executions' texts."""


class CrowdResult(Struct, kw_only=True):
    """Made by measure_crowd; read by the table and the JSON file."""

    executions: int
    calls_each: int
    completed: int
    """Executions whose last call was answered."""
    history_tokens: int
    """Of an execution at its last call: the mean."""
    most_in_flight: int
    seconds: float
    calls_per_s: float
    first_call_cpu_ms: float
    """Of a first call, which brings the whole history."""
    later_call_cpu_ms: float
    resident_bytes_each: float
    """Growth of the proxy's memory over all calls, by execution."""
    worst_lag_ms: float
    """Longest time by which the event loop came late, other processes' doing included."""
    worst_slice_ms: float
    """Longest CPU time that the event loop's thread took between two turns of the probe."""
    over_50_ms: int


def measure_crowd(  # noqa: PLR0913 — the bench's options
    executions: int,
    calls: int,
    tokens: int,
    tokenizer: Path,
    folder: Path,
    clock: Clock,
    tell: Callable[[str], None],
) -> CrowdResult:
    """All executions go on together: a long first call each, then short ones."""
    cores = sorted(os.sched_getaffinity(0))
    settings = DoorSettings(
        tokenizer=str(tokenizer),
        folder=str(folder),
        executions=executions,
        engine_s=OVERLAP * executions * CALL_S,
        core=cores[-1],
    )
    with DoorProcess(settings) as door:
        if len(cores) > 1:
            os.sched_setaffinity(0, set(cores[:-1]))
        try:
            crowd = Crowd(door, executions, tokens, clock)
            return asyncio.run(crowd.talk(calls, tell))
        finally:
            os.sched_setaffinity(0, set(cores))


class Crowd:
    """The clients."""

    def __init__(self, door: DoorProcess, executions: int, tokens: int, clock: Clock) -> None:
        self._door, self._clock = door, clock
        chars = tokens * CHARS_PER_TOKEN
        text = corpus(chars + OFFSET * executions)
        self._talks = [Talk(str(number)) for number in range(executions)]
        for number, talk in enumerate(self._talks):
            talk.say(text[number * OFFSET : number * OFFSET + chars])
        self._result = text[:RESULT_CHARS]
        self._first_s = executions * (CALL_S + tokens * TOKEN_S)
        self._later_s = executions * CALL_S
        self._tokens = [0] * executions
        """Of each one's last prompt."""

    async def talk(self, calls: int, tell: Callable[[str], None]) -> CrowdResult:
        """Round after round: every execution calls, and then every execution has its answer."""
        door, count = self._door, len(self._talks)
        await asyncio.to_thread(door.stats)
        empty, begun = door.resident_bytes(), self._clock.now()
        used, draw = [], random.Random(0)
        done: list[bool] = []
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=600)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            for number in range(calls):
                tell(f"{count} executions, call {number + 1} of {calls}")
                before = door.cpu_s()
                spread_s = self._later_s if number else self._first_s
                starts = [draw.random() * spread_s for _ in range(count)]
                done = await asyncio.gather(
                    *(self._call(session, at, start) for at, start in enumerate(starts))
                )
                used.append(door.cpu_s() - before)
            seconds = self._clock.now() - begun
            stats = await asyncio.to_thread(door.stats)  # before the clients hang up, all at once
        return CrowdResult(
            executions=count,
            calls_each=calls,
            completed=sum(done),
            history_tokens=sum(self._tokens) // count,
            most_in_flight=stats.most_in_flight,
            seconds=seconds,
            calls_per_s=count * calls / seconds,
            first_call_cpu_ms=1e3 * used[0] / count,
            later_call_cpu_ms=1e3 * sum(used[1:]) / (count * max(1, calls - 1)),
            resident_bytes_each=(door.resident_bytes() - empty) / count,
            worst_lag_ms=stats.worst_lag_ms,
            worst_slice_ms=stats.worst_slice_ms,
            over_50_ms=stats.over_50_ms,
        )

    async def _call(self, session: aiohttp.ClientSession, at: int, start_s: float) -> bool:
        await self._clock.sleep(start_s)
        url = f"http://127.0.0.1:{self._door.port}/run/e{at}/v1/chat/completions"
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        talk = self._talks[at]
        async with session.post(url, data=talk.body(), headers=headers) as response:
            reply = await response.read()
        if response.status != http.HTTPStatus.OK:
            found = f"{response.status}: {reply[:200].decode(errors='replace')}"
            raise UserError("an answer to every call", found, "mend the proxy")
        self._tokens[at] = msgspec.json.decode(reply)["usage"]["prompt_tokens"]
        talk.add(reply, self._result)
        return True
