"""The tables of a run's file, and whether a file is one.

Invariant: a file that is not a run's store, or is of another schema, is left as it was found.
"""

import sqlite3
from pathlib import Path

from opengyre.core.errors import StoreError, UserError

SCHEMA_VERSION = 4
"""Raised when a table is added or changes shape; another schema is refused, not guessed at."""
EXTENDED = {1, 2, 3}
"""Schemas that lack nothing but whole tables, which are added: the proxy's journal, ends, and lives."""
OURS = {"meta", "calls", "executions", "ledgers", "groups", "steps", "events"}
"""Tables of every schema so far."""
MISTAKEN = "pass a run's folder, or the run.sqlite in it"

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
CREATE TABLE IF NOT EXISTS doors (
    execution_id TEXT PRIMARY KEY, body BLOB NOT NULL, tallies BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS begun (
    execution_id TEXT NOT NULL, call_id TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (execution_id, call_id)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS progress (
    id INTEGER PRIMARY KEY, execution_id TEXT NOT NULL, call_id TEXT NOT NULL, body BLOB NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS progress_of ON progress (execution_id, call_id);
CREATE TABLE IF NOT EXISTS traces (
    execution_id TEXT NOT NULL, call_id TEXT NOT NULL, idx INTEGER NOT NULL,
    delivered INTEGER NOT NULL, trace BLOB NOT NULL, told BLOB,
    PRIMARY KEY (execution_id, call_id)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ends (execution_id TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS lives (id INTEGER PRIMARY KEY, began REAL NOT NULL, alive REAL NOT NULL) STRICT;
"""


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a run's file, made if there is none.

    Raises UserError for a file that is something else, StoreError when it cannot be opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(
            path, check_same_thread=False, isolation_level=None, timeout=30
        )
        try:
            if _check(connection, path) != SCHEMA_VERSION:
                _make(connection)
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise StoreError(
            f"wanted a run's store at {path}; found {error}; free space, mend permissions, "
            "or take another copy of it"
        ) from error
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> int:
    """Its schema, 0 for a new file. Reads only, so that what is not ours stays as it is."""
    wanted = f"a run's store at {path}"
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise UserError(wanted, "a file that is not a database", MISTAKEN) from error
    tables = {str(name) for (name,) in rows}
    if not tables and version == 0:
        return 0
    if not tables >= OURS:
        raise UserError(wanted, "an SQLite file of another program", MISTAKEN)
    if version not in EXTENDED | {SCHEMA_VERSION}:
        raise UserError(
            f"{wanted} of schema {SCHEMA_VERSION}",
            f"schema {version}",
            "open it with the OpenGyre that wrote it, or start a new run",
        )
    return int(version)


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
    )
