"""The benches' tables, and their figures as JSON with the machine and the commit."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import msgspec
from rich.box import SIMPLE_HEAD
from rich.table import Table

from opengyre.app.bench.jmax import JmaxResult
from opengyre.app.bench.ratios import PolicyResult
from opengyre.app.bench.runs import PolicyRun
from opengyre.app.bench.tree import TreeResult
from opengyre.app.bench.workload import Workload
from opengyre.app.machine import machine
from opengyre.core.reasons import CellRole


def policies_table(runs: Sequence[PolicyRun], result: PolicyResult) -> Table:
    """One line a run, the fastest policy's first."""
    table = Table(
        title="The same optimiser steps under each policy", box=None, padding=(0, 1, 0, 0)
    )
    table.add_column("policy", no_wrap=True)
    for heading in (
        "seconds",
        "×",
        "rollout",
        "train",
        "idle",
        "stale",
        "age",
        "reward",
        "moved",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    elastic = result.mean_seconds["elastic"]
    for run in sorted(runs, key=lambda one: (result.mean_seconds[one.label], one.repeat)):
        stale = run.staleness_steps
        table.add_row(
            run.label,
            f"{run.seconds:.1f}",
            f"{run.seconds / elastic:.2f}",
            f"{run.busy_share.get(CellRole.ROLLOUT.value, 0.0):.0%}",
            f"{run.busy_share.get(CellRole.TRAINING.value, 0.0):.0%}",
            f"{run.idle_share:.0%}",
            f"{stale.mean:.1f}/{stale.p95}/{stale.max}",
            f"{run.token_age_versions:.2f}",
            f"{run.reward:.3f}±{run.reward_error:.3f}",
            f"{run.moved_with_kv}+{run.recomputed}",
        )
    return table


def policies_words(runs: Sequence[PolicyRun], result: PolicyResult) -> list[str]:
    """What the table says, in sentences that quote its figures."""
    noise = "within" if result.scores_within_noise else "NOT within"
    first = runs[0]
    learned = result.forecast_over_elastic
    return [
        f"elastic is {result.elastic_over_colocate:.2f} times as fast as colocate and "
        f"{result.elastic_over_async_best:.2f} times as fast as {result.async_best}",
        *([f"forecast is {learned:.2f} times as fast as elastic"] if learned else []),
        f"mean rewards are {noise} noise of one another; no group was older than "
        f"{max(run.staleness_versions.max for run in runs)} versions (bound "
        f"{result.staleness_bound})",
        f"an execution takes {first.execution_s:.1f} s under {first.label}, the slowest of a group "
        f"{first.slowest_over_mean:.2f} times the mean",
        f"everything beside the cells took {fmean(run.beside_share for run in runs):.1%} of the cores",
        "rollout, train: CPU time of cells in that role, of all cells' time; stale: optimiser "
        "steps from dispatch, mean/p95/max; age: versions from sampling, mean over tokens; moved: calls in flight, with their KV cache + recomputed",
    ]


def simulate_words(runs: Sequence[Path]) -> str:
    """How the same is simulated: the first repeat of each policy, predicted from that of another."""
    first = [run for run in runs if run.name.endswith("-0")]
    fitted = next(run for run in first if run.name.startswith("colocate"))
    others = " ".join(f"--against {run}" for run in first if run != fitted)
    return f"beside a simulation: opengyre simulate --from {fitted} {others}"


def tree_table(result: TreeResult) -> Table:
    """Ratios with the figures that they come from."""
    table = Table(title=f"Tree-packed / path-expanded, {result.run}", box=SIMPLE_HEAD)
    for heading in ("figure", "tree", "expanded", "ratio"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    table.add_row(
        "seconds",
        f"{result.tree_seconds:.2f}",
        f"{result.expanded_seconds:.2f}",
        f"{result.time_ratio:.3f}",
    )
    table.add_row(
        "tokens",
        f"{result.packed_tokens:,}",
        f"{result.expanded_tokens:,}",
        f"{result.token_ratio:.3f}",
    )
    errors = {
        "gradient error, whole": result.relative_gradient_error,
        "largest entry": result.max_relative_gradient_error,
        "worst weight": result.worst_weight_gradient_error,
    }
    for name, error in errors.items():
        table.add_row(name, "", "", f"{error:.1e}")
    return table


def jmax_table(result: JmaxResult) -> Table:
    """One line a J_max, with what it is measured against last."""
    table = Table(title="J_max, against unlimited", box=SIMPLE_HEAD)
    for heading in ("J_max", "paths", "tokens", "seconds", "ratio", "gradient", "ratio", "cosine"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result.choices:
        table.add_row(
            row.j_max,
            f"{row.trajectories:,}",
            f"{row.token_share:.1%}",
            f"{row.seconds:.2f}",
            f"{row.time_ratio:.2f}",
            f"{row.gradient_norm:.3g}",
            f"{row.gradient_norm_ratio:.2f}",
            f"{row.cosine:.3f}",
        )
    return table


def jmax_words(result: JmaxResult) -> list[str]:
    """What the table was measured on."""
    return [
        f"{result.executions} executions, {result.branched} with more than one leaf, "
        f"{result.leaves} leaves, {result.sampled_tokens:,} sampled tokens; "
        f"advantages: {result.advantages}",
        f"{result.model}; {result.truncated_tokens:,} tokens deeper than the budget of "
        f"{result.token_budget:,}; {result.draws} draws, {result.repeats} repeats",
    ]


def jmax_json(result: JmaxResult) -> dict[str, object]:
    """All figures of the bench."""
    figures: dict[str, object] = msgspec.to_builtins(result)
    return {"bench": "jmax", **figures, "machine": machine()}


def policies_json(
    runs: Sequence[PolicyRun], result: PolicyResult, workload: Workload
) -> dict[str, object]:
    """All figures of the bench."""
    figures: dict[str, object] = msgspec.to_builtins(result)
    return {
        "bench": "policies",
        **figures,
        "runs": msgspec.to_builtins(runs),
        "workload": msgspec.to_builtins(workload),
        "machine": machine(),
    }


def tree_json(result: TreeResult) -> dict[str, object]:
    """All figures of the bench."""
    figures: dict[str, object] = msgspec.to_builtins(result)
    return {"bench": "tree", **figures, "machine": machine()}
