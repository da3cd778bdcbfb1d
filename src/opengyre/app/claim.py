"""Who may write a run's folder: nothing recorded is ever overwritten or mixed with another run.

Invariant: all that a run recorded was made with one value of each key in SAME. A run that never
began (no phase is recorded) has nothing to lose, and does not stand in the way of another start.
"""

import asyncio
import json
import shutil
from pathlib import Path

from opengyre.config.run import RunConfig
from opengyre.core.errors import UserError
from opengyre.store.run import RunStore

META = "config"
"""Name of the configuration in the run's store."""

SAME = (
    "run.seed",
    "policy.model",
    "policy.family",
    "policy.tool_style",
    "tasks.train",
    "tasks.heldout",
    "tasks.train_count",
    "tasks.heldout_count",
    "harness.name",
    "schedule.group_size",
)
"""What recorded groups and evaluations mean depends on these; all other keys may change."""


def check_free(folder: Path, *, resume: bool) -> None:
    """Raises UserError when there is no run to resume, or one that would be overwritten."""
    store = folder / "run.sqlite"
    if resume and not store.is_file():
        raise UserError(f"a run to go on with at {folder}", "no run.sqlite", "leave out --resume")
    if not resume and store.is_file() and _began(store):
        raise UserError(
            f"no run at {folder} yet",
            "one is there",
            f"add --resume to go on with it, choose another --name, or: rm -r {folder}",
        )


def claim(config: RunConfig, source: Path, folder: Path) -> None:
    """Record the run's configuration. Raises UserError when the run has another one already."""
    with RunStore(folder / "run.sqlite") as store:
        known = store.meta(META)
        if known is not None and store.events("phase"):
            _check_same(json.loads(known), json.loads(config.model_dump_json()))
        remember(config, store)
    try:
        shutil.copyfile(source, folder / "config.toml")
    except OSError as error:
        raise UserError(
            f"to write the run folder {folder}", str(error), "free space or set run.folder"
        ) from error


def remember(config: RunConfig, store: RunStore) -> None:
    """Write it to the store of a run that is about to begin."""
    asyncio.run(store.put_meta(META, config.model_dump_json()))


def recorded_config(store: RunStore) -> RunConfig | None:
    """The configuration of the run, options of the command line included; None for older runs.

    Raises UserError for one that cannot be read.
    """
    known = store.meta(META)
    if known is None:
        return None
    try:
        return RunConfig.model_validate_json(known)
    except ValueError as error:
        wanted = f"the configuration of the run in {store.path}, as this version reads it"
        first = str(error).split("\n", 1)[-1].replace("\n", " ").split(" [type=")[0]
        action = "take the version of opengyre that made the run, or a store that is not damaged"
        raise UserError(wanted, first, action) from error


def _began(store: Path) -> bool:
    with RunStore(store) as opened:
        return bool(opened.events("phase"))


def _check_same(known: dict[str, dict[str, object]], now: dict[str, dict[str, object]]) -> None:
    changed = []
    for key in SAME:
        section, name = key.split(".")
        old, new = known[section].get(name), now[section][name]
        if old != new:
            changed.append(f"{key} was {old!r} and is {new!r}")
    if changed:
        raise UserError(
            "to go on with the run's own " + ", ".join(one.split(" ")[0] for one in changed),
            "; ".join(changed),
            "set it back, or start a new run with another --name",
        )
