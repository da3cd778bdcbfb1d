"""One run's SQLite file. Invariant: a write that returned survives the death of the process.

One thread owns the writing connection and commits whatever queued up as one transaction (group
commit), so that many calls share one fsync and the event loop never waits for the disk.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from opengyre.core.errors import StoreError
from opengyre.core.records import Call, ExecutionRecord
from opengyre.store.rows import EventRow, GroupRow, GroupState, StepRow
from opengyre.tree.ledger import Ledger

SCHEMA_VERSION = 1
"""Raised when a table changes shape; an older file is refused, not guessed at."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS calls (
    execution_id TEXT NOT NULL, idx INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (execution_id, idx)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS executions (execution_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS ledgers (execution_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS groups (group_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS steps (step INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, body BLOB NOT NULL) STRICT;
"""

Statement = tuple[str, tuple[str | int | bytes, ...]]
Job = tuple[list[Statement], "Future[None]"]


class RunStore:
    """Writes are coroutines that return once durable; reads are plain, from any thread, and see every
    returned write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _connect(path)
            self._reader = _connect(path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"wanted a run's store at {path}; found {error}; free space, mend permissions, or "
                "pass a run's folder"
            ) from error
        self._reading = threading.Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="store", daemon=True)
        self._thread.start()

    def __enter__(self) -> "RunStore":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Writes what is queued, then closes the file."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()
            self._writer.close()
            with self._reading:
                self._reader.close()

    async def record(self, call: Call) -> None:
        """One call. Raises StoreError."""
        body = msgspec.msgpack.encode(call)
        await self._write(
            [("INSERT INTO calls VALUES (?, ?, ?)", (call.execution_id, call.index, body))]
        )

    async def put_execution(self, record: ExecutionRecord) -> None:
        """One ended execution."""
        body = msgspec.msgpack.encode(record)
        await self._write([("INSERT INTO executions VALUES (?, ?)", (record.execution_id, body))])

    async def put_group(self, row: GroupRow, ledgers: dict[str, Ledger] | None = None) -> None:
        """A group's newest state, with its executions' ledgers once they are known."""
        statements = [_group(row)]
        for execution_id, ledger in (ledgers or {}).items():
            values = (execution_id, msgspec.msgpack.encode(ledger))
            statements.append(("INSERT OR REPLACE INTO ledgers VALUES (?, ?)", values))
        await self._write(statements)

    async def put_step(self, row: StepRow, consumed: list[GroupRow]) -> None:
        """A step and the groups it consumed, in one transaction."""
        body = msgspec.msgpack.encode(row)
        step: Statement = ("INSERT OR REPLACE INTO steps VALUES (?, ?)", (row.step, body))
        await self._write([step, *(_group(group) for group in consumed)])

    async def put_event(self, row: EventRow) -> None:
        """Something for the report."""
        body = msgspec.msgpack.encode(row)
        await self._write([("INSERT INTO events (kind, body) VALUES (?, ?)", (row.kind, body))])

    async def put_meta(self, key: str, value: str) -> None:
        """A fact about the run."""
        await self._write([("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))])

    async def rewind(self, step: int) -> None:
        """Forget steps after `step` (their weights were never saved); their groups are ready again."""
        gone = {row.step for row in self.steps() if row.step > step}
        statements: list[Statement] = [("DELETE FROM steps WHERE step > ?", (step,))]
        for row in self.groups():
            if row.step in gone:
                statements.append(
                    _group(msgspec.structs.replace(row, state=GroupState.READY, step=None))
                )
        await self._write(statements)

    def calls(self, execution_id: str) -> list[Call]:
        """An execution's calls in order of recording."""
        rows = self._read(
            "SELECT body FROM calls WHERE execution_id = ? ORDER BY idx", (execution_id,)
        )
        return [msgspec.msgpack.decode(body, type=Call) for body in rows]

    def executions(self) -> list[ExecutionRecord]:
        """Every ended execution, by order of ending."""
        rows = self._read("SELECT body FROM executions ORDER BY rowid")
        return [msgspec.msgpack.decode(body, type=ExecutionRecord) for body in rows]

    def ledgers(self) -> dict[str, Ledger]:
        """Ledgers by execution id."""
        rows = self._rows("SELECT execution_id, body FROM ledgers")
        return {key: msgspec.msgpack.decode(body, type=Ledger) for key, body in rows}

    def groups(self) -> list[GroupRow]:
        """Every group in order of dispatch."""
        rows = [
            msgspec.msgpack.decode(b, type=GroupRow) for b in self._read("SELECT body FROM groups")
        ]
        return sorted(rows, key=lambda row: row.index)

    def steps(self) -> list[StepRow]:
        """Every optimiser step in order."""
        rows = self._read("SELECT body FROM steps ORDER BY step")
        return [msgspec.msgpack.decode(body, type=StepRow) for body in rows]

    def events(self, kind: str) -> list[EventRow]:
        """Events of one kind, in order."""
        rows = self._read("SELECT body FROM events WHERE kind = ? ORDER BY id", (kind,))
        return [msgspec.msgpack.decode(body, type=EventRow) for body in rows]

    def meta(self, key: str) -> str | None:
        """A fact about the run, or None."""
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return str(rows[0][0]) if rows else None

    def _read(self, sql: str, values: tuple[str, ...] = ()) -> list[bytes]:
        return [row[0] for row in self._rows(sql, values)]

    def _rows(self, sql: str, values: tuple[str, ...] = ()) -> list[Any]:
        with self._reading:
            return self._reader.execute(sql, values).fetchall()

    async def _write(self, statements: list[Statement]) -> None:
        if not self._thread.is_alive():
            raise StoreError(f"the run's store at {self.path} is closed")
        done: Future[None] = Future()
        self._jobs.put((statements, done))
        await asyncio.shield(asyncio.wrap_future(done))

    def _write_all(self) -> None:
        for batch in self._batches():
            try:
                _commit(self._writer, batch)
            except sqlite3.Error:
                for job in batch:  # one bad job must not take the others with it
                    self._commit_alone(job)
            else:
                for _, done in batch:
                    done.set_result(None)

    def _commit_alone(self, job: Job) -> None:
        statements, done = job
        try:
            _commit(self._writer, [job])
        except sqlite3.Error as error:
            table = statements[0][0].split(" VALUES")[0]
            found = f"the run's store at {self.path} refused a write ({table}): {error}"
            done.set_exception(
                StoreError(f"{found}; what was recorded before is kept: free space, then --resume")
            )
        else:
            done.set_result(None)

    def _batches(self) -> Iterator[list[Job]]:
        while (job := self._jobs.get()) is not None:
            batch = [job]
            while not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    yield batch
                    return
                batch.append(following)
            yield batch


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found not in {0, SCHEMA_VERSION}:
        raise StoreError(
            f"wanted a store of schema {SCHEMA_VERSION} at {path}; found schema {found}; "
            "open it with the OpenGyre that wrote it, or start a new run"
        )
    connection.executescript(TABLES)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return connection


def _commit(connection: sqlite3.Connection, batch: list[Job]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements, _ in batch:
            for sql, values in statements:
                connection.execute(sql, values)
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _group(row: GroupRow) -> Statement:
    return (
        "INSERT OR REPLACE INTO groups VALUES (?, ?)",
        (row.group_id, msgspec.msgpack.encode(row)),
    )
