"""Waiting for processes under a Clock.

Invariant: nothing here waits without a limit, except for what has been killed already.
"""

import asyncio
import os
from collections.abc import Coroutine

from opengyre.core.protocols import Clock


async def within(work: Coroutine[None, None, object], seconds: float, clock: Clock) -> bool:
    """True when work ended inside the limit; it is cancelled otherwise."""
    working = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({working, timer}, return_when=asyncio.FIRST_COMPLETED)
        return working.done()
    finally:
        working.cancel()
        timer.cancel()


async def process_gone(pidfd: int) -> None:
    """Return once the process behind a pidfd is dead; for the first of a pid namespace, all of it."""
    loop = asyncio.get_running_loop()
    dead = loop.create_future()

    def on_dead() -> None:
        loop.remove_reader(pidfd)
        if not dead.done():
            dead.set_result(None)

    loop.add_reader(pidfd, on_dead)
    try:
        await dead
    finally:
        loop.remove_reader(pidfd)


def open_pidfd(pid: int) -> int | None:
    """A handle of a process that cannot be confused with a later one; None when it is gone."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None
