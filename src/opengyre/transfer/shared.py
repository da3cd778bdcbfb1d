"""Named tensors in shared memory: weight snapshots and gradient buffers.

Invariant: a reader gets exactly one whole write() or a TransferError. The sequence number is odd
while a write is under way (also after a writer died in one) and a reader checks it before and after
copying, then the CRC-32 of its private copy; nothing reaches the reader's tensors before that.
"""

import mmap
import os
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor

from opengyre.core.errors import TransferError
from opengyre.transfer.manifest import (
    ALIGNMENT,
    Bytes,
    Manifest,
    TensorSpec,
    check_fits,
    checksum,
    manifest_of,
    offsets,
    pack,
    unpack,
)

MAGIC = b"OGSHARE1"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""File names are short and cannot leave their folder."""
HEADER = struct.Struct("<8sQqIIQ")
"""magic, sequence, version, crc, manifest bytes, payload bytes."""
STATE = struct.Struct("<QqI")
"""sequence, version, crc: the part that each write changes."""
STATE_AT = len(MAGIC)


class Snapshot(NamedTuple):
    """A private copy of one whole write."""

    version: int
    checksum: int
    tensors: dict[str, Tensor]


class SharedTensors:
    """One writer, any number of readers, one file. Not for two writers at a time."""

    def __init__(self, path: Path, *, owner: bool, writable: bool) -> None:
        """Map an existing file; use create() or open()."""
        self.path = path
        self._owner = owner
        try:
            with path.open("r+b" if writable else "rb") as file:
                access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
                self._memory = mmap.mmap(file.fileno(), 0, access=access)
        except (OSError, ValueError) as error:
            raise TransferError(f"wanted shared tensors at {path}; found {error}") from error
        self.manifest, self._payload_at, self._payload_size = self._layout()

    @classmethod
    def create(cls, folder: Path, name: str, manifest: Iterable[TensorSpec]) -> "SharedTensors":
        """Make the file (replacing an older one) and own it: close() then removes it.

        Raises TransferError for a bad name or when the memory is full.
        """
        specs = list(manifest)
        path = _path(folder, name)
        encoded = msgspec.json.encode(specs)
        size = offsets(specs)[1]
        start = _payload_start(len(encoded))
        part = path.with_name(f"{path.name}.part")
        try:
            with part.open("wb") as file:
                # Memory that is promised but absent would kill the writer with SIGBUS later.
                os.posix_fallocate(file.fileno(), 0, start + max(size, 1))
                file.write(HEADER.pack(MAGIC, 0, -1, 0, len(encoded), size) + encoded)
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise TransferError(
                f"wanted {start + size} bytes of shared memory at {path}; found {error}; free some"
            ) from error
        return cls(path, owner=True, writable=True)

    @classmethod
    def open(cls, folder: Path, name: str, *, writable: bool = False) -> "SharedTensors":
        """Map what another process created. Raises TransferError when it is absent or broken."""
        return cls(_path(folder, name), owner=False, writable=writable)

    @property
    def version(self) -> int:
        """Version of the last write; -1 before the first. Raises TransferError during a write."""
        return self._state()[1]

    def write(self, version: int, tensors: Mapping[str, Tensor]) -> int:
        """Replace the snapshot; returns its checksum. Raises TransferError on other shapes."""
        check_fits(self.manifest, tensors)
        sequence, old_version, old_crc = STATE.unpack_from(self._memory, STATE_AT)
        odd = sequence | 1  # stays odd after a writer that died: its half write is overwritten
        STATE.pack_into(self._memory, STATE_AT, odd, old_version, old_crc)
        crc = pack(self.manifest, tensors, self._payload())
        STATE.pack_into(self._memory, STATE_AT, odd, version, crc)
        STATE.pack_into(self._memory, STATE_AT, odd + 1, version, crc)
        return crc

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Copy out one whole write.

        Raises TransferError when nothing was written, a write is under way, the checksum does not
        fit, or `version` is given and another one is there.
        """
        before = self._state()
        copy = self._payload().copy()
        if STATE.unpack_from(self._memory, STATE_AT) != before:
            raise TransferError(f"{self.path.name} was written while it was read; read it again")
        _, found, crc = before
        if version is not None and found != version:
            raise TransferError(f"wanted version {version} of {self.path.name}; found {found}")
        tensors = unpack(self.manifest, copy)
        if (actual := checksum(tensors.items())) != crc:
            raise TransferError(
                f"wanted checksum {crc:08x} of {self.path.name} version {found}; found {actual:08x}; "
                "write it again"
            )
        return Snapshot(found, crc, tensors)

    def read(self, into: Mapping[str, Tensor], version: int | None = None) -> int:
        """Copy one whole write into tensors (dtypes may differ); returns its version.

        Raises TransferError as snapshot() does, or when names or shapes differ; `into` is then
        untouched.
        """
        snapshot = self.snapshot(version)
        shapes = {spec.name: spec.shape for spec in self.manifest}
        if shapes != {name: list(t.shape) for name, t in into.items()}:
            raise TransferError(f"wanted tensors like those of {self.path.name}; found other ones")
        with torch.no_grad():
            for name, tensor in snapshot.tensors.items():
                into[name].copy_(tensor)
        return snapshot.version

    def unlink(self) -> None:
        """Remove the file; whoever mapped it keeps the memory. Idempotent."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmap, and unlink when this is the creator. Idempotent."""
        self._memory.close()
        if self._owner:
            self.unlink()

    def _state(self) -> tuple[int, int, int]:
        sequence, version, crc = STATE.unpack_from(self._memory, STATE_AT)
        if sequence % 2:
            raise TransferError(f"{self.path.name} is being written; read it again later")
        if sequence == 0:
            raise TransferError(f"{self.path.name} was never written")
        return sequence, version, crc

    def _payload(self) -> Bytes:
        """A view that must not outlive the caller, or the memory could not be unmapped."""
        return np.frombuffer(self._memory, np.uint8, self._payload_size, self._payload_at)

    def _layout(self) -> tuple[Manifest, int, int]:
        fault = TransferError(f"wanted shared tensors at {self.path}; found a foreign or cut file")
        if len(self._memory) < HEADER.size:
            raise fault
        magic, _, _, _, length, size = HEADER.unpack_from(self._memory, 0)
        start = _payload_start(length)
        if magic != MAGIC or len(self._memory) < start + size:
            raise fault
        encoded = self._memory[HEADER.size : HEADER.size + length]
        try:
            manifest = msgspec.json.decode(encoded, type=list[TensorSpec])
        except msgspec.DecodeError as error:
            raise fault from error
        return manifest, start, size


def share(folder: Path, name: str, like: Iterable[tuple[str, Tensor]]) -> SharedTensors:
    """Create shared tensors shaped like these, without writing them."""
    return SharedTensors.create(folder, name, manifest_of(like))


def _payload_start(manifest_bytes: int) -> int:
    return -(-(HEADER.size + manifest_bytes) // ALIGNMENT) * ALIGNMENT


def _path(folder: Path, name: str) -> Path:
    if not NAME.fullmatch(name):
        raise TransferError(f"wanted a name like {NAME.pattern}; found {name!r}")
    return folder / name
