"""Checkpoints: folders that transformers loads, with the optimiser beside the weights.

A checkpoint appears whole or not at all (written to a hidden folder, synced, renamed). Layout:
config.json, model.safetensors and tokenizer files; trainer/optimiser.safetensors and
trainer/mark.json in a folder of their own, so that no loader takes them for weights.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from msgspec import Struct
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from opengyre.core.errors import LearnerError, UserError
from opengyre.model.folder import load_model, save_model
from opengyre.model.qwen3 import Qwen3

OPTIMISER = Path("trainer/optimiser.safetensors")
MARK = Path("trainer/mark.json")
PREFIX = "step-"
HIDDEN = ".new-"
"""Start of the names of unfinished folders; a crash leaves one, the next save removes it."""


class Mark(Struct, frozen=True, kw_only=True):
    """Where in a run a checkpoint stands. Made by and read by app."""

    step: int
    """Optimiser steps done."""
    version: int
    """Weight version that these weights were or will be published as."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read back."""

    model: Qwen3
    optimiser: dict[str, Tensor]
    mark: Mark


def save(
    root: Path, model: Qwen3, like: Path, optimiser: dict[str, Tensor], mark: Mark, keep: int
) -> Path:
    """Write root/step-N, then drop all but the newest `keep` checkpoints; returns its folder.

    like: the folder whose config and tokenizer the checkpoint takes over. Raises LearnerError when
    the disk refuses; older checkpoints are kept then.
    """
    assert keep > 0
    try:
        return _replace(root, model, like, optimiser, mark, keep)
    except (OSError, SafetensorError) as error:
        raise LearnerError(
            f"wanted to write a checkpoint in {root}; found {error}; free space, then --resume"
        ) from error


def _replace(
    root: Path, model: Qwen3, like: Path, optimiser: dict[str, Tensor], mark: Mark, keep: int
) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for old in root.glob(f"{HIDDEN}*"):
        shutil.rmtree(old)
    final = root / f"{PREFIX}{mark.step:08d}"
    fresh = root / f"{HIDDEN}{final.name}"
    _write(fresh, model, like, optimiser, mark)
    if final.exists():
        final.rename(root / f"{HIDDEN}replaced-{final.name}")
    fresh.rename(final)
    _sync(root)
    for old in [*root.glob(f"{HIDDEN}*"), *checkpoints(root)[:-keep]]:
        shutil.rmtree(old)
    return final


def load(folder: Path, dtype: torch.dtype = torch.float32) -> Checkpoint:
    """Read a checkpoint. Raises UserError for a folder that is not a whole one."""
    mark = read_mark(folder)
    try:
        optimiser = load_file(folder / OPTIMISER)
    except (OSError, SafetensorError) as error:
        raise _unusable(folder, error) from error
    return Checkpoint(load_model(folder, dtype), optimiser, mark)


def read_mark(folder: Path) -> Mark:
    """Where a checkpoint stands, without its tensors. Raises UserError."""
    try:
        return msgspec.json.decode((folder / MARK).read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError) as error:
        raise _unusable(folder, error) from error


def checkpoints(root: Path) -> list[Path]:
    """All whole checkpoints, the newest last."""
    return sorted(root.glob(f"{PREFIX}*"))


def _unusable(folder: Path, error: Exception) -> UserError:
    return UserError(
        f"a checkpoint at {folder}",
        str(error),
        f"remove it (rm -r {folder}): --resume then goes on from the one before",
    )


def _write(
    folder: Path, model: Qwen3, like: Path, optimiser: dict[str, Tensor], mark: Mark
) -> None:
    save_model(model, folder, like)
    (folder / MARK).parent.mkdir()
    state = {name: t.detach().contiguous() for name, t in optimiser.items()}
    save_file(state, folder / OPTIMISER)
    (folder / MARK).write_bytes(msgspec.json.encode(mark))
    for path in [*folder.rglob("*"), folder]:
        _sync(path)


def _sync(path: Path) -> None:
    """Reach the disk: without it a rename may survive a power cut that its content does not."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
