"""How far a command is that simulates many worlds, on a terminal; elsewhere nothing is said.

Invariant: what is printed besides is the same with and without it.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console

from opengyre.app.simulate.workers import Each, workers

A = TypeVar("A")
R = TypeVar("R")


@contextmanager
def shown_workers(jobs: int, console: Console) -> Iterator[Each]:
    """A map over so many processes that says how many of its arguments are done."""
    with workers(jobs) as each, console.status("simulating …") as status:
        yield counted(each, status.update)


def counted(each: Each, say: Callable[[str], None]) -> Each:
    """The same map; after each result it says how many of how many there are."""

    def count(function: Callable[[A], R], arguments: Iterable[A]) -> Generator[R, None, None]:
        known = list(arguments)
        for done, result in enumerate(each(function, known), 1):
            say(f"simulated {done} of {len(known)} …")
            yield result

    return count
