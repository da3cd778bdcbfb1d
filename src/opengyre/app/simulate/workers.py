"""The same function of many arguments, on one process or several.

Invariant: results come in the order of the arguments, so how many processes worked on them shows in
nothing but the time they took.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")
AHEAD = 2
"""Arguments begun for each process: none idles while the caller looks at a result, and little is
begun in vain when it has seen enough."""


class Each(Protocol):
    """The map of `workers`; what it gives is lazy, and may be left in the middle."""

    def __call__(
        self, function: Callable[[A], R], arguments: Iterable[A]
    ) -> Generator[R, None, None]:
        """function of each argument, in order."""
        ...


@contextmanager
def workers(jobs: int) -> Iterator[Each]:
    """A map over so many processes; with one, over this one."""
    if jobs == 1:
        yield _one_by_one
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_follow)
    try:
        yield partial(_in_order, pool, AHEAD * jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def _one_by_one(function: Callable[[A], R], arguments: Iterable[A]) -> Generator[R, None, None]:
    return (function(argument) for argument in arguments)


def _follow() -> None:
    """Ctrl-C is for the process that hands out the work; when that dies, this one does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "a worker was started by another process"
    parent.join()
    os._exit(1)


def _in_order(
    pool: ProcessPoolExecutor, ahead: int, function: Callable[[A], R], arguments: Iterable[A]
) -> Generator[R, None, None]:
    begun: deque[Future[R]] = deque()
    try:
        for argument in arguments:
            begun.append(pool.submit(function, argument))
            if len(begun) >= ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
