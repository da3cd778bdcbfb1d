"""Selected trajectories as a Parquet file, one row each, written and read a row group at a time.

Invariant: what is read equals what was written, bit for bit; lists of a row are all as long as its
token_ids. Memory holds one row group, whatever the file's size.
"""

import json
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from opengyre.core.errors import UserError
from opengyre.core.reasons import Role
from opengyre.core.records import ExecutionSample, Trajectory

SCHEMA_VERSION = 1
"""Raised when a column changes its name or meaning."""

METADATA_KEY = b"opengyre"
"""Of the file's metadata: JSON with the schema's version, the run and the commit."""

ROW_GROUP_TOKENS = 1 << 20
"""Tokens after which a row group is written: some 20 MB in memory, and large enough to compress."""


class Row(Struct, kw_only=True):
    """One selected trajectory. Made by app (export); read by whoever trains on the file."""

    run: str
    execution_id: str
    group_id: str | None
    task_id: str | None
    harness: str | None
    split: str | None
    attempt: int | None
    model: str | None
    verdict: str | None
    ending: str | None
    reward: float | None
    passed: bool | None
    advantage: float | None
    """Relative to the group; None for an execution that enters no baseline."""
    trained: bool
    """Whether it is what a learner takes: of a scored execution, in a whole group that differs."""
    why_untrained: str | None
    step: int | None
    """Optimiser step that consumed it; None where none did."""
    trajectory: int
    """Order of drawing within the execution, from 0."""
    trajectories: int
    """Of the execution."""
    execution_tokens: int
    """Trained tokens of the execution, all its trajectories together: the loss divides by it."""
    oldest_version: int
    """Lowest weight version that sampled a trained token of the execution."""
    leaf_call_id: str
    role: str
    token_ids: list[int]
    mask: list[bool]
    """True where the token is a target: sampled by the policy, and owned by this trajectory."""
    logprobs: list[float]
    """At sampling; 0 where mask is False."""
    versions: list[int]
    """Weight version that sampled the token; -1 where mask is False."""

    def as_trajectory(self) -> Trajectory:
        """What the learner takes."""
        owned = [i for i, target in enumerate(self.mask) if target]
        return Trajectory(
            leaf_call_id=self.leaf_call_id,
            role=Role(self.role),
            token_ids=self.token_ids,
            owned=owned,
            behaviour_logprobs=[self.logprobs[i] for i in owned],
        )


class RowWriter:
    """Appends rows; the file is whole once the block is left without an error."""

    def __init__(self, path: Path, metadata: dict[str, object]) -> None:
        arrow, parquet = _arrow()
        about = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}, sort_keys=True)
        self._schema = _schema(arrow).with_metadata({METADATA_KEY: about.encode()})
        self._table = arrow.Table
        self._file = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[Row] = []
        self._tokens = 0

    def __enter__(self) -> "RowWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if error is None:
            self._flush()
        self._file.close()

    def add(self, row: Row) -> None:
        """One trajectory."""
        self._rows.append(row)
        self._tokens += len(row.token_ids)
        if self._tokens >= ROW_GROUP_TOKENS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            plain = [msgspec.structs.asdict(row) for row in self._rows]
            self._file.write_table(self._table.from_pylist(plain, schema=self._schema))
        self._rows, self._tokens = [], 0


def read_rows(path: Path) -> Iterator[Row]:
    """Every row, in order of writing. Raises UserError for another kind of file."""
    arrow, parquet = _arrow()
    try:
        file = parquet.ParquetFile(path)
    except (OSError, arrow.ArrowInvalid) as error:
        raise UserError(
            f"a Parquet file at {path}", str(error), "pass what `opengyre export` wrote"
        ) from error
    with file:
        found = json.loads((file.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}"))
        if found.get("schema_version") != SCHEMA_VERSION:
            raise UserError(
                f"exported trajectories of schema {SCHEMA_VERSION} at {path}",
                f"schema {found.get('schema_version')}",
                "export the run again with this OpenGyre",
            )
        for group in range(file.num_row_groups):
            for raw in file.read_row_group(group).to_pylist():
                yield msgspec.convert(raw, Row)


def samples_of(rows: Iterable[Row]) -> Iterator[ExecutionSample]:
    """What the learner got, from the rows that are marked as trained."""
    trained = (row for row in rows if row.trained)
    for execution_id, own in groupby(trained, key=lambda row: row.execution_id):
        parts = list(own)
        first = parts[0]
        assert first.advantage is not None, f"{execution_id} is trained without an advantage"
        yield ExecutionSample(
            execution_id=execution_id,
            group_id=first.group_id or "",
            advantage=first.advantage,
            reward=first.reward or 0.0,
            trajectories=[row.as_trajectory() for row in parts],
            oldest_version=first.oldest_version,
            owned_tokens=first.execution_tokens,
        )


def _arrow() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet. Raises UserError."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise UserError(
            "pyarrow, which writes and reads Parquet",
            str(error),
            "install it with: pip install 'opengyre[export]'",
        ) from error


def _schema(arrow: Any) -> Any:
    words = ["run", "execution_id", "group_id", "task_id", "harness", "split", "model"]
    words += ["verdict", "ending", "why_untrained", "leaf_call_id", "role"]
    types = dict.fromkeys(words, arrow.string())
    types |= dict.fromkeys(("attempt", "trajectory", "trajectories"), arrow.int32())
    types |= dict.fromkeys(("step", "execution_tokens", "oldest_version"), arrow.int64())
    types |= dict.fromkeys(("reward", "advantage"), arrow.float64())
    types |= dict.fromkeys(("passed", "trained"), arrow.bool_())
    types |= {
        "token_ids": arrow.list_(arrow.int32()),
        "mask": arrow.list_(arrow.bool_()),
        "logprobs": arrow.list_(arrow.float64()),
        "versions": arrow.list_(arrow.int32()),
    }
    return arrow.schema([(name, types[name]) for name in Row.__struct_fields__])
