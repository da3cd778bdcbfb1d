"""What a recording can be told. Written down in its run folder, so that it can be gone on with."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opengyre.app.claim import META
from opengyre.app.recording.recognise import AUTO
from opengyre.app.sources import named_policy
from opengyre.config.load import parse_config
from opengyre.core.errors import UserError
from opengyre.proxy.families.chatml import ToolStyle
from opengyre.store.run import RunStore
from opengyre.tree.roles import TABLES

RECORDED = "recorded"
"""In place of tasks: there are none."""
FIRST = "first"
"""The execution of a recording that names none."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Of an execution: it is part of an address and of file names."""
SAME = ("model", "family", "tool_style")
"""What recorded tokens mean depends on these."""
META_RECORDING = "recording"
"""Name of the recording's own facts in the run's store."""


@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """One recording."""

    model: Path
    """Folder with the tokenizer and the configuration of the model that is served."""
    upstream: str | None
    """Address of its server; None: it is served by this process."""
    upstream_key: str | None = None
    family: str
    tool_style: ToolStyle = "json"
    harness: str
    """A name of tree.roles, or "auto"."""
    executions: tuple[str, ...]
    """Ids that may call; empty: any id, each opened by its first call."""
    temperature: float = 1.0
    seed: int = 0
    context_tokens: int | None = None
    """Longest prompt + answer; None: what the server says."""
    max_new_tokens: int = 8192
    patience_s: float = 300.0
    silence_s: float = 600.0
    port: int | None = None
    socket: Path | None = None


def chosen(
    upstream: str | None,
    model: Path | None,
    policy: Path | None,
    executions: list[str],
    *,
    any_name: bool,
    **others: Any,
) -> RecordingOptions:
    """From what the command line says. Raises UserError for what does not go together."""
    action = "give --upstream URL and --model FOLDER, or --policy FOLDER (or quickstart) alone"
    if upstream is None and policy is None:
        raise UserError("something to record", "neither --upstream nor --policy", action)
    if policy is not None and (upstream is not None or model is not None):
        beside = "--upstream" if upstream is not None else "--model"
        raise UserError("one model", f"--policy beside {beside}", action)
    if upstream is not None and model is None:
        raise UserError("one model", "--upstream without --model", action)
    if any_name and executions:
        raise UserError("--open, or names", "both", "leave out --open or --execution")
    harness = others["harness"]
    if harness != AUTO and harness not in TABLES:
        known = ", ".join([AUTO, *sorted(TABLES)])
        raise UserError("an agent program that is known", repr(harness), f"choose one of {known}")
    folder = named_policy(policy) if policy is not None else model
    assert folder is not None
    names = () if any_name else checked_names(executions or [FIRST])
    return RecordingOptions(model=folder, upstream=upstream, executions=names, **others)


def checked_names(names: list[str]) -> tuple[str, ...]:
    """Raises UserError."""
    odd = [name for name in names if not NAME.fullmatch(name)]
    if odd or len(set(names)) < len(names):
        raise UserError(
            "different execution names of letters, digits, dots and dashes",
            ", ".join(odd or names),
            "mend --execution",
        )
    return tuple(names)


def model_rows(folder: Path) -> int:
    """Rows of the embedding, from config.json. Raises UserError."""
    file = folder / "config.json"
    wanted = f"a model's folder at {folder}, with vocab_size in config.json"
    if not file.is_file():
        raise UserError(wanted, "no config.json there", "pass the folder of the served model")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        rows = raw.get("vocab_size") or raw.get("text_config", {}).get("vocab_size")
        return int(rows)
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(wanted, f"{error}", "save the model's folder again") from error


async def claim_recording(options: RecordingOptions, store: RunStore, run: Path) -> None:
    """Make the folder this recording's own. Raises UserError when it is another's."""
    known = store.meta(META_RECORDING)
    if known is None and (store.meta(META) is not None or store.recorded()):
        raise UserError(f"a recording at {run}", "a training run", "choose another --out")
    now = {
        "model": str(options.model.resolve()),
        "family": options.family,
        "tool_style": options.tool_style,
    }
    if known is not None:
        _check_same(json.loads(known), now, run)
    await store.put_meta(META_RECORDING, json.dumps(now))
    await store.put_meta(META, _as_config(options, run))


def _check_same(known: dict[str, str], now: dict[str, str], run: Path) -> None:
    changed = [
        f"{key} was {known[key]} and is {now[key]}" for key in SAME if known[key] != now[key]
    ]
    if changed:
        raise UserError(
            f"to go on with the recording at {run} as it was begun",
            "; ".join(changed),
            "choose another --out, or the same model",
        )


def _as_config(options: RecordingOptions, run: Path) -> str:
    """What `tree`, `report` and `export` ask of any run."""
    limit = max(options.context_tokens or 0, options.max_new_tokens + 1, 64)
    raw: dict[str, object] = {
        "run": {"name": _plain(run.name), "seed": options.seed},
        "policy": {
            "model": options.model.resolve(),
            "family": options.family,
            "tool_style": options.tool_style,
            "context_tokens": limit,
            "max_new_tokens": options.max_new_tokens,
            "temperature": options.temperature or 1.0,
        },
        "tasks": {"train": RECORDED, "heldout": RECORDED},
        "harness": {"name": "command", "command": [RECORDED]},
        "cells": {"kv_tokens": max(limit, 32768), "token_budget": max(limit, 8192)},
    }
    return parse_config(raw, "a recording's options that fit together").model_dump_json()


def _plain(name: str) -> str:
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in name.lower())
    return kept.lstrip("._-") or RECORDED
