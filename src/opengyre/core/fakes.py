"""Stand-ins for the protocols, for tests and replays."""

import itertools

from opengyre.core.records import Call


class FakeClock:
    """Virtual time: sleeping advances it at once."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


class CountingIds:
    """kind-1, kind-2, …"""

    def __init__(self) -> None:
        self._counter = itertools.count(1)

    def new(self, kind: str) -> str:
        return f"{kind}-{next(self._counter)}"


class MemoryRecorder:
    """Keeps calls in a list, in order of recording."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    async def record(self, call: Call) -> None:
        self.calls.append(call)
