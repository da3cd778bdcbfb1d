"""Tree-packed against path-expanded training, on the trees that a run recorded.

The samples are those that the run trained on: same groups, same selection, same micro-step budget;
only the weights are newer, those of its newest checkpoint.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from msgspec import Struct

from opengyre.app.groups import samples_from_store
from opengyre.app.sources import policy_folder
from opengyre.config.load import load_config
from opengyre.config.run import RunConfig
from opengyre.core.errors import UserError
from opengyre.core.fakes import CountingIds
from opengyre.core.records import ExecutionRecord, MicroStep
from opengyre.learner.checkpoint import checkpoints
from opengyre.learner.compare import compare
from opengyre.model.folder import load_model
from opengyre.store.rows import GroupState
from opengyre.store.run import RunStore
from opengyre.tree.pack import micro_steps


class TreeResult(Struct, kw_only=True):
    """Ratios are tree / expanded. Made by measure_trees; read by the table and the JSON file."""

    time_ratio: float
    token_ratio: float
    relative_gradient_error: float
    """Of the whole gradient, in 2-norms."""
    max_relative_gradient_error: float
    """Largest difference of an entry over the largest entry of the whole gradient."""
    worst_weight_gradient_error: float
    """In 2-norms for each weight by itself; the largest."""
    tree_seconds: float
    """For all micro-steps once, the fastest of the repeats; likewise the next."""
    expanded_seconds: float
    packed_tokens: int
    expanded_tokens: int
    run: str
    model: str
    groups: int
    executions: int
    trajectories: int
    micro_steps: int
    repeats: int


def measure_trees(run: Path, groups: int, repeats: int, now: Callable[[], float]) -> TreeResult:
    """Compare on the last `groups` groups that the run trained on. Raises UserError.

    One thread, as a cell of the run has. now: seconds of any clock.
    """
    config = config_of(run)
    with RunStore(run / "run.sqlite") as store:
        micros = recorded_micro_steps(config, store, groups)
    if not micros:
        raise UserError(
            f"a run at {run} that trained on at least one group",
            "none with a gradient",
            "let the run take an optimiser step first",
        )
    found = checkpoints(run / "checkpoints")
    folder = found[-1] if found else policy_folder(config)
    torch.set_num_threads(config.cells.threads)
    result = compare(load_model(folder), micros, config.learner, now, repeats)
    samples = [sample for micro in micros for sample in micro.samples]
    return TreeResult(
        time_ratio=result.time_ratio,
        token_ratio=result.token_ratio,
        relative_gradient_error=result.relative_gradient_error,
        max_relative_gradient_error=result.max_relative_gradient_error,
        worst_weight_gradient_error=result.worst_weight_gradient_error,
        tree_seconds=result.tree_seconds,
        expanded_seconds=result.expanded_seconds,
        packed_tokens=sum(micro.packed_tokens for micro in micros),
        expanded_tokens=sum(micro.expanded_tokens for micro in micros),
        run=run.name,
        model=folder.name,
        groups=len({sample.group_id for sample in samples}),
        executions=len({sample.execution_id for sample in samples}),
        trajectories=sum(len(sample.trajectories) for sample in samples),
        micro_steps=len(micros),
        repeats=result.repeats,
    )


def config_of(run: Path) -> RunConfig:
    """The run's configuration, with the seed that it really had. Raises UserError."""
    if not (run / "run.sqlite").is_file():
        raise UserError(
            f"a run folder at {run}", "no run.sqlite in it", "pass a run's folder, or run one first"
        )
    raw = load_config(run / "config.toml").model_dump()
    summary = run / "summary.json"
    if summary.is_file():
        raw["run"]["seed"] = json.loads(summary.read_text())["seed"]
    return RunConfig.model_validate(raw)


def recorded_micro_steps(config: RunConfig, store: RunStore, groups: int) -> list[MicroStep]:
    """Micro-steps of the newest consumed groups with spread, oldest first."""
    records: dict[str, list[ExecutionRecord]] = {}
    for record in store.executions():
        records.setdefault(record.group_id, []).append(record)
    consumed = [row for row in store.groups() if row.state is GroupState.CONSUMED]
    consumed.sort(key=lambda row: (row.step or 0, row.index))
    ids = CountingIds()
    found: list[list[MicroStep]] = []
    for row in reversed(consumed):
        if len(found) == groups:
            break
        samples = samples_from_store(config, store, row.group_id, records[row.group_id]).samples
        if samples:
            step = row.step or 0
            found.append(micro_steps(samples, config.cells.token_budget, step, ids))
    return [micro for group in reversed(found) for micro in group]
