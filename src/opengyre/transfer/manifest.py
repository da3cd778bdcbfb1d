"""What a set of tensors looks like as bytes, and its checksum.

Invariant: `checksum` depends on names, order and raw bytes alone, so the checksum of a model's
`named_weights()` equals that of the snapshot it was loaded from (same dtype).
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor

from opengyre.core.errors import TransferError

Bytes = NDArray[np.uint8]
ALIGNMENT = 64
"""Bytes; tensors start on cache lines, and every dtype divides it."""


class TensorSpec(Struct, frozen=True):
    """One tensor of a manifest. Made by the writer; read by every reader."""

    name: str
    shape: list[int]
    dtype: str
    """As in torch, without the `torch.` prefix."""

    @property
    def nbytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count * torch_dtype(self.dtype).itemsize


Manifest = Sequence[TensorSpec]


def torch_dtype(name: str) -> torch.dtype:
    """Raises TransferError for a name that torch does not know."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise TransferError(f"wanted a torch dtype; found {name!r}; write the file again")
    return dtype


def manifest_of(tensors: Iterable[tuple[str, Tensor]]) -> list[TensorSpec]:
    """The manifest of named tensors, in their order."""
    return [TensorSpec(n, list(t.shape), str(t.dtype).removeprefix("torch.")) for n, t in tensors]


def offsets(manifest: Manifest) -> tuple[list[int], int]:
    """Where each tensor starts in the payload, and the payload's size in bytes."""
    starts: list[int] = []
    at = 0
    for spec in manifest:
        starts.append(at)
        at += -(-spec.nbytes // ALIGNMENT) * ALIGNMENT
    return starts, at


def raw_bytes(tensor: Tensor) -> Bytes:
    """A tensor's bytes as a flat uint8 array (a view where the tensor is contiguous on the CPU)."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return cast(Bytes, flat.view(torch.uint8).numpy())


def checksum(tensors: Iterable[tuple[str, Tensor]]) -> int:
    """CRC-32 over names and bytes, in order."""
    crc = 0
    for name, tensor in tensors:
        crc = zlib.crc32(raw_bytes(tensor).data, zlib.crc32(name.encode(), crc))
    return crc


def unpack(manifest: Manifest, payload: Bytes) -> dict[str, Tensor]:
    """Tensors that share memory with a payload of ours. Raises TransferError when it is too short."""
    starts, size = offsets(manifest)
    if len(payload) < size:
        raise TransferError(
            f"wanted {size} bytes of tensors; found {len(payload)}; send them again"
        )
    out: dict[str, Tensor] = {}
    for spec, start in zip(manifest, starts, strict=True):
        dtype = torch_dtype(spec.dtype)
        if spec.nbytes == 0:  # torch cannot view nothing as another dtype
            out[spec.name] = torch.empty(spec.shape, dtype=dtype)
            continue
        flat = torch.from_numpy(payload[start : start + spec.nbytes])
        out[spec.name] = flat.view(dtype).reshape(spec.shape)
    return out


def check_fits(manifest: Manifest, tensors: Mapping[str, Tensor]) -> None:
    """Raises TransferError unless names, shapes and dtypes are the manifest's."""
    found = manifest_of(
        (spec.name, tensors[spec.name]) for spec in manifest if spec.name in tensors
    )
    if len(tensors) == len(manifest) and found == list(manifest):
        return
    odd = sorted(tensors.keys() ^ {spec.name for spec in manifest})
    if not odd:
        odd = [want.name for want, got in zip(manifest, found, strict=True) if want != got]
    raise TransferError(
        "wanted the tensors of the manifest; found other names, shapes or dtypes: "
        f"{', '.join(odd[:3])}; create the shared tensors anew"
    )


def pack(manifest: Manifest, tensors: Mapping[str, Tensor], payload: Bytes) -> int:
    """Copy fitting tensors into a payload and return their checksum."""
    crc = 0
    for spec, start in zip(manifest, offsets(manifest)[0], strict=True):
        data = raw_bytes(tensors[spec.name])
        payload[start : start + spec.nbytes] = data
        crc = zlib.crc32(data.data, zlib.crc32(spec.name.encode(), crc))
    return crc
