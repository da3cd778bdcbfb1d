"""The one door to the wall clock, to real sleeping and to the system's entropy."""

import asyncio
import secrets
import time


class WallClock:
    """Seconds since this object was made, from the monotonic clock, plus an offset for resumed runs."""

    def __init__(self, offset: float = 0.0) -> None:
        self._zero = time.monotonic() - offset

    def now(self) -> float:
        return time.monotonic() - self._zero

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class RandomIds:
    """Ids that nobody guesses: they also serve as per-execution keys."""

    def new(self, kind: str) -> str:
        return f"{kind}-{secrets.token_hex(8)}"


def today() -> str:
    """UTC date and time, for run folders and reports."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
