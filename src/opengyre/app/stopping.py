"""Run work to its end, or until somebody stops it: ctrl-C and SIGTERM both leave a run in order."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import TypeVar

from rich.console import Console

T = TypeVar("T")


def until_done(work: Coroutine[None, None, T], if_stopped: str) -> T:
    """The work's result. Stopped, it cleans up, prints `if_stopped` and exits with 128 + signal.

    Of several errors the first is raised: the others are its consequences.
    """
    # A script's background jobs start with SIGINT ignored; sent to a run, it is meant.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return asyncio.run(_stoppable(work))
    except KeyboardInterrupt:
        number = signal.SIGINT
    except asyncio.CancelledError:
        number = signal.SIGTERM
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
    Console(stderr=True).print(f"\n{if_stopped}", highlight=False, soft_wrap=True)
    raise SystemExit(128 + number)


async def _stoppable(work: Coroutine[None, None, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The innermost first exception."""
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
