"""One-shot files of a header and tensors: the KV blocks of a call that moves.

Invariant: a blob appears under its name whole (atomic rename) and is read whole or not at all: the
CRC-32 covers header, manifest and tensors.
"""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from torch import Tensor

from opengyre.core.errors import TransferError
from opengyre.transfer.manifest import TensorSpec, manifest_of, offsets, pack, unpack

MAGIC = b"OGBLOB01"
PREFIX = struct.Struct("<8sIIQ")
"""magic, crc of all that follows, header bytes, payload bytes."""

H = TypeVar("H")


class _Head(Struct, frozen=True):
    header: msgspec.Raw
    manifest: list[TensorSpec]


def write_blob(path: Path, header: object, tensors: Mapping[str, Tensor]) -> None:
    """Write a msgspec-encodable header and tensors. Raises TransferError (disk full, no folder)."""
    manifest = manifest_of(tensors.items())
    payload = np.zeros(offsets(manifest)[1], np.uint8)
    pack(manifest, tensors, payload)
    head = msgspec.json.encode(_Head(msgspec.Raw(msgspec.json.encode(header)), manifest))
    crc = zlib.crc32(payload.data, zlib.crc32(head))
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(PREFIX.pack(MAGIC, crc, len(head), len(payload)) + head)
            file.write(payload.data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise TransferError(f"wanted to write a blob at {path}; found {error}") from error


def read_blob(path: Path, header: type[H]) -> tuple[H, dict[str, Tensor]]:
    """Read a whole blob into private memory. Raises TransferError when it is absent or damaged."""
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise TransferError(f"wanted a blob at {path}; found {error}") from error
    fault = TransferError(f"wanted a whole blob at {path}; found a foreign, cut or damaged file")
    if len(data) < PREFIX.size:
        raise fault
    magic, crc, head_size, payload_size = PREFIX.unpack(data[: PREFIX.size].tobytes())
    body = data[PREFIX.size :]
    if magic != MAGIC or len(body) != head_size + payload_size or zlib.crc32(body.data) != crc:
        raise fault
    try:
        head = msgspec.json.decode(body[:head_size].tobytes(), type=_Head)
        decoded = msgspec.json.decode(head.header, type=header)
    except msgspec.DecodeError as error:
        raise TransferError(f"wanted a {header.__name__} in {path}; found {error}") from error
    return decoded, unpack(head.manifest, body[head_size:].copy())
