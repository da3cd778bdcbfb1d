"""One SQLite file, one writing thread. Invariant: a write that returned survives the death of the
process, and every write is answered: with its success, or with a StoreError.

The thread commits whatever queued up as one transaction (group commit), so that many calls share
one fsync and the event loop never waits for the disk. Writes become durable in the order in which
they were asked for.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opengyre.core.errors import StoreError
from opengyre.store.schema import connect

LINGER_S = 0.05
"""Seconds that writes nobody waits for are held back, to share a commit with others."""

ALIVE = "UPDATE lives SET alive = ? WHERE id = (SELECT max(id) FROM lives) AND alive < ?"
"""The newest life goes on at least until then; once a transaction, however many calls are in it."""

log = logging.getLogger(__name__)

Statement = tuple[str, tuple[str | int | float | bytes | None, ...]]


@dataclass(frozen=True)
class Job:
    """Statements of one transaction."""

    statements: list[Statement]
    urgent: bool
    """Somebody waits for it."""
    at: float | None = None
    """On the run's clock, what it tells of; a sign of life."""
    done: "Future[None]" = field(default_factory=Future)


class Writer:
    """Writes are coroutines that return once durable; reads are plain, from any thread, and see every
    returned write. Raises UserError for a file that is no store of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed_posts = 0
        """Writes that nobody waited for and that the file refused."""
        self._connection = connect(path)
        self._reader = connect(path)
        self._reading = threading.Lock()
        self._asking = threading.Lock()
        self._open = True
        self._hurry = threading.Event()
        """Somebody waits for a write, or for the end."""
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Writes what is queued, then closes the file. Idempotent."""
        with self._asking:
            if self._open:
                self._open = False
                self._jobs.put(None)
                self._hurry.set()
        self._thread.join()
        self._connection.close()
        with self._reading:
            self._reader.close()

    async def write(self, *statements: Statement, at: float | None = None) -> None:
        """One transaction; at: the time that it tells of. Raises StoreError."""
        job = self._ask(Job(list(statements), urgent=True, at=at))
        await asyncio.shield(asyncio.wrap_future(job.done))

    def post(self, *statements: Statement) -> None:
        """One transaction that nobody waits for. One that is refused is counted and logged."""
        job = self._ask(Job(list(statements), urgent=False))
        job.done.add_done_callback(self._posted)

    async def settled(self) -> None:
        """Return once everything that was asked for before is answered."""
        await self.write()

    def read(self, sql: str, values: tuple[str, ...] = ()) -> list[Any]:
        """Rows of a query."""
        with self._reading:
            return self._reader.execute(sql, values).fetchall()

    def _posted(self, done: "Future[None]") -> None:
        if (error := done.exception()) is not None:
            self.failed_posts += 1
            log.error("%s", error)

    def _ask(self, job: Job) -> Job:
        with self._asking:
            if not self._open:
                raise StoreError(f"the run's store at {self.path} is closed")
            job.done.set_running_or_notify_cancel()  # from here on nobody can take it back
            self._jobs.put(job)
        if job.urgent:
            self._hurry.set()
        return job

    def _run(self) -> None:
        """The thread. Whatever stops it, nobody is left waiting."""
        try:
            for batch in self._batches():
                self._write_batch(batch)
        finally:
            with self._asking:
                self._open = False
            while not self._jobs.empty():
                if (job := self._jobs.get()) is not None:
                    self._refuse(job, StoreError("its writing thread ended"))

    def _write_batch(self, batch: list[Job]) -> None:
        try:
            _commit(self._connection, batch)
        except Exception:  # noqa: BLE001 — one bad job must not take the others with it
            for job in batch:
                self._write_alone(job)
        else:
            for job in batch:
                job.done.set_result(None)

    def _write_alone(self, job: Job) -> None:
        try:
            _commit(self._connection, [job])
        except Exception as error:  # noqa: BLE001 — whoever waits gets it, whatever it is
            self._refuse(job, error)
        else:
            job.done.set_result(None)

    def _refuse(self, job: Job, error: Exception) -> None:
        what = job.statements[0][0].split(" VALUES")[0] if job.statements else "nothing"
        refusal = StoreError(
            f"the run's store at {self.path} refused a write ({what}): {error}; what was recorded "
            "before is kept: free space, then --resume"
        )
        refusal.__cause__ = error
        job.done.set_exception(refusal)

    def _batches(self) -> Iterator[list[Job]]:
        """What is to share a commit; one that nobody waits for lingers until somebody does."""
        while (job := self._jobs.get()) is not None:
            if not job.urgent:
                self._hurry.wait(LINGER_S)
            self._hurry.clear()
            batch = [job]
            while not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    yield batch
                    return
                batch.append(following)
            yield batch


def _commit(connection: sqlite3.Connection, batch: list[Job]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for job in batch:
            for sql, values in job.statements:
                connection.execute(sql, values)
        times = [job.at for job in batch if job.at is not None]
        if times:
            connection.execute(ALIVE, (max(times), max(times)))
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
