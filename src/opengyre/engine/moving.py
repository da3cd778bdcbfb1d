"""The KV blocks of one call as a blob, to leave one engine and enter another."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from torch import Tensor

from opengyre.core.errors import TransferError
from opengyre.transfer.blob import read_blob, write_blob

KV = "kv"
"""Name of the blob's only tensor, [layers, tokens, 2 * kv_heads, head_dim]."""


class KvHeader(Struct, frozen=True, kw_only=True):
    """What the KV was computed from. Made by the engine that a call leaves; read by the next one."""

    version: int
    layout: str
    token_ids: list[int]
    """Exactly the tokens whose KV is in the blob."""


def send_kv(path: Path, header: KvHeader, kv: Tensor) -> None:
    """Raises TransferError when the blob cannot be written."""
    write_blob(path, header, {KV: kv})


def receive_kv(path: Path, version: int, layout: str, tokens: Sequence[int]) -> Tensor | None:
    """KV of a prefix of `tokens` short of the last one, or None where the blob gives none."""
    try:
        header, tensors = read_blob(path, KvHeader)
    except TransferError:
        return None  # absent or damaged: recomputing gives the same tokens
    kv = tensors.get(KV)
    if kv is None or header.version != version or header.layout != layout:
        return None
    same = 0
    for ours, theirs in zip(tokens[:-1], header.token_ids, strict=False):
        if ours != theirs:
            break
        same += 1
    usable = min(same, kv.shape[1])
    return kv[:, :usable] if usable else None
