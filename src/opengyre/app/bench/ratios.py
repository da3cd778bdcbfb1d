"""From runs to ratios: means over repeats first, then one over the other."""

import math
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from opengyre.app.bench.runs import PolicyRun

NOISE = 2.0
"""Standard errors between two mean rewards that are still called equal."""


class PolicyResult(Struct, kw_only=True):
    """The ratios. Made by compare_runs; read by the table and the JSON file."""

    elastic_over_colocate: float
    """Colocate's mean time over elastic's: above 1, elastic is faster."""
    elastic_over_async_best: float
    forecast_over_elastic: float | None
    """Elastic's mean time over forecast's: above 1, forecast is faster. None = it did not run."""
    async_best: str
    """The split with the smallest mean time."""
    mean_seconds: dict[str, float]
    scores_within_noise: bool
    """Whether no two contenders' mean rewards differ by more than two standard errors."""
    within_bound: bool
    """Whether no group of any contender was older, in versions, than the bound."""
    staleness_bound: int


def compare_runs(runs: Sequence[PolicyRun], staleness_bound: int) -> PolicyResult:
    """Means over repeats, then ratios."""
    by_label: dict[str, list[PolicyRun]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    seconds = {label: fmean(r.seconds for r in of) for label, of in by_label.items()}
    best = min((label for label in seconds if label.startswith("async")), key=seconds.__getitem__)
    learned = seconds.get("forecast")
    return PolicyResult(
        forecast_over_elastic=seconds["elastic"] / learned if learned else None,
        elastic_over_colocate=seconds["colocate"] / seconds["elastic"],
        elastic_over_async_best=seconds[best] / seconds["elastic"],
        async_best=best,
        mean_seconds=seconds,
        scores_within_noise=_within_noise(list(by_label.values())),
        within_bound=all(run.staleness_versions.max <= staleness_bound for run in runs),
        staleness_bound=staleness_bound,
    )


def _within_noise(groups: list[list[PolicyRun]]) -> bool:
    pooled = [
        (fmean(r.reward for r in of), math.hypot(*(r.reward_error for r in of)) / len(of))
        for of in groups
    ]
    return all(abs(a - b) <= NOISE * math.hypot(x, y) for a, x in pooled for b, y in pooled)
