"""The three policies on one workload, in turns: time to the same number of optimiser steps."""

import asyncio
import math
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from msgspec import Struct

from opengyre.app.bench.meter import CellMeter
from opengyre.app.bench.workload import Workload, configuration, write_workload
from opengyre.app.commands import first_cause
from opengyre.app.history import Figures
from opengyre.app.paths import RunPaths
from opengyre.app.report.lanes import lanes
from opengyre.app.train import Outcome, World, train
from opengyre.app.wall import RandomIds, WallClock
from opengyre.config.run import PolicyName, RunConfig
from opengyre.core.reasons import CellRole, VerdictKind
from opengyre.core.records import ExecutionRecord
from opengyre.scheduler.staleness import Spread
from opengyre.store.rows import StepRow
from opengyre.store.run import RunStore

NOISE = 2.0
"""Standard errors between two mean rewards that are still called equal."""


@dataclass(frozen=True)
class Contender:
    """A policy, and for the fixed split how many cells always train."""

    policy: PolicyName
    training_cells: int = 1

    def label(self, cells: int) -> str:
        """Such as "async 1:3" for one training and three rollout cells."""
        if self.policy != "async":
            return self.policy
        return f"async {self.training_cells}:{cells - self.training_cells}"


class PolicyRun(Struct, kw_only=True):
    """One run. Made by measure; read by the table and the JSON file. Shares are of all cells' time."""

    label: str
    repeat: int
    seconds: float
    """From the first dispatch to the end of the last optimiser step."""
    steps: int
    executions: int
    excluded: int
    """Executions without a score; they are in no group's baseline."""
    role_share: dict[str, float]
    """Wall time by role."""
    busy_share: dict[str, float]
    """CPU time of the cells' processes, by the role they had."""
    idle_share: float
    """Neither: waiting for calls, for groups, or for the processor."""
    beside_share: float
    """CPU time of the controller, the agents and their tests, of the same cores' time."""
    execution_s: float
    slowest_over_mean: float
    """Mean over groups of the slowest execution over the group's mean."""
    staleness_steps: Spread
    staleness_versions: Spread
    reward: float
    reward_error: float
    """Standard error of the mean."""
    reward_last: float
    """Mean over the last burst's groups."""
    role_switches: int
    switch_s: float
    """Mean time of a move to training; its cell neither rolls out nor trains."""
    moved_with_kv: int
    recomputed: int
    harness_visible_errors: int
    packed_tokens: int
    """Trained on."""


Tell = Callable[[str, int], None]
"""(label of the run under way, steps done in it)."""


def contenders(cells: int) -> list[Contender]:
    """Elastic, colocate, and async at every split."""
    splits = [Contender("async", training) for training in range(1, cells)]
    return [Contender("elastic"), Contender("colocate"), *splits]


def in_turns(cells: int, repeats: int) -> Iterator[tuple[int, Contender]]:
    """All contenders in each repeat, each time another one first: drift of the machine hits all."""
    entered = contenders(cells)
    for repeat in range(repeats):
        first = repeat % len(entered)
        for contender in entered[first:] + entered[:first]:
            yield repeat, contender


def measure_all(workload: Workload, folder: Path, repeats: int, tell: Tell) -> list[PolicyRun]:
    """Run every contender `repeats` times; each run keeps its folder below `folder`."""
    write_workload(workload, folder)
    return [
        measure(workload, folder, contender, repeat, tell)
        for repeat, contender in in_turns(workload.cells, repeats)
    ]


def measure(
    workload: Workload, folder: Path, contender: Contender, repeat: int, tell: Tell
) -> PolicyRun:
    """One run through the real controller, cells, proxy, sandbox and store."""
    label = contender.label(workload.cells)
    config = configuration(workload, folder, contender.policy, contender.training_cells)
    run = folder / "runs" / f"{label.replace(' ', '-').replace(':', '-')}-{repeat}"
    shutil.rmtree(run, ignore_errors=True)
    paths = RunPaths.make(run)
    watch = _Watch(config, paths, label, tell)
    try:
        outcome = asyncio.run(
            train(config, paths, World(WallClock(), RandomIds(), watch), resume=False)
        )
    except BaseExceptionGroup as group:
        raise first_cause(group) from group
    with RunStore(paths.store) as store:
        return _figures(watch, outcome, store, label, repeat)


class _Watch:
    """Meters CPU time from the start of training to the end of the last step."""

    def __init__(self, config: RunConfig, paths: RunPaths, label: str, tell: Tell) -> None:
        self.config = config
        self.meter = CellMeter(paths.folder)
        self.beside = 0.0
        self._label, self._tell = label, tell
        self._steps = -1

    def __call__(self, figures: Figures) -> None:
        done = len(figures.steps)
        if figures.phase != "training" or self._steps == self.config.run.steps:
            return
        if self._steps < 0:
            self.meter.start(figures.roles)
            self.beside = -_cpu_beside()
        self.meter.roles(figures.roles)
        if done != self._steps:
            self._steps = done
            self._tell(self._label, done)
        if done == self.config.run.steps:
            self.meter.read()
            self.beside += _cpu_beside()


def _cpu_beside() -> float:
    """Of this process and the children that it has waited for: sandboxes, but no living cell."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _figures(
    watch: _Watch, outcome: Outcome, store: RunStore, label: str, repeat: int
) -> PolicyRun:
    cells = watch.config.cells.count
    steps = store.steps()
    began = next(e.at for e in store.events("phase") if e.fields["name"] == "training")
    ended = steps[-1].at
    seconds = ended - began
    whole = seconds * cells
    groups = _by_group(store.executions())
    rewards = _rewards(groups, steps)
    busy = {role.value: used / whole for role, used in watch.meter.seconds.items()}
    durations = [[r.ended_at - r.started_at for r in group] for group in groups.values()]
    switches = store.events("switch")
    assert outcome.staleness is not None, "training ended without a scheduler"
    return PolicyRun(
        label=label,
        repeat=repeat,
        seconds=seconds,
        steps=len(steps),
        executions=sum(map(len, groups.values())),
        excluded=sum(r.verdict.kind is not VerdictKind.SCORED for r in store.executions()),
        role_share=_role_share(store, began, ended, whole),
        busy_share=busy,
        idle_share=1 - sum(busy.values()),
        beside_share=watch.beside / whole,
        execution_s=fmean(x for group in durations for x in group),
        slowest_over_mean=fmean(max(group) / fmean(group) for group in durations),
        staleness_steps=outcome.staleness.steps,
        staleness_versions=outcome.staleness.versions,
        reward=fmean(rewards),
        reward_error=stdev(rewards) / math.sqrt(len(rewards)),
        reward_last=fmean(_rewards(groups, steps[-watch.config.schedule.steps_per_burst :])),
        role_switches=outcome.role_switches,
        switch_s=fmean([float(e.fields["seconds"]) for e in switches] or [0.0]),
        moved_with_kv=outcome.moved_with_kv,
        recomputed=outcome.recomputed,
        harness_visible_errors=outcome.tally.harness_visible_errors,
        packed_tokens=int(sum(row.metrics["packed_tokens"] for row in steps)),
    )


def _by_group(records: Sequence[ExecutionRecord]) -> dict[str, list[ExecutionRecord]]:
    groups: dict[str, list[ExecutionRecord]] = {}
    for record in records:
        if record.final:
            groups.setdefault(record.group_id, []).append(record)
    return groups


def _rewards(groups: dict[str, list[ExecutionRecord]], steps: Sequence[StepRow]) -> list[float]:
    consumed = [record for row in steps for name in row.groups for record in groups[name]]
    return [r.verdict.reward for r in consumed if r.verdict.reward is not None]


def _role_share(store: RunStore, began: float, ended: float, whole: float) -> dict[str, float]:
    shares: dict[str, float] = {}
    events = [event for event in store.events("role") if event.at <= ended]
    for span in lanes(events, ended):
        inside = max(0.0, span.end - max(span.start, began))
        shares[span.role.value] = shares.get(span.role.value, 0.0) + inside / whole
    if not events:  # nothing ever changed its role
        shares[CellRole.ROLLOUT.value] = 1.0
    return shares


class PolicyResult(Struct, kw_only=True):
    """The ratios. Made by compare_runs; read by the table and the JSON file."""

    elastic_over_colocate: float
    """Colocate's mean time over elastic's: above 1, elastic is faster."""
    elastic_over_async_best: float
    async_best: str
    """The split with the smallest mean time."""
    mean_seconds: dict[str, float]
    scores_within_noise: bool
    """Whether no two contenders' mean rewards differ by more than two standard errors."""
    staleness_equal: bool
    """Whether all contenders' largest staleness, in versions, is within the same bound."""
    staleness_bound: int


def compare_runs(runs: Sequence[PolicyRun], workload: Workload) -> PolicyResult:
    """Means over repeats, then ratios."""
    by_label: dict[str, list[PolicyRun]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    seconds = {label: fmean(r.seconds for r in of) for label, of in by_label.items()}
    best = min((label for label in seconds if label.startswith("async")), key=seconds.__getitem__)
    bound = -(-workload.staleness_steps // workload.steps_per_burst) + 1
    return PolicyResult(
        elastic_over_colocate=seconds["colocate"] / seconds["elastic"],
        elastic_over_async_best=seconds[best] / seconds["elastic"],
        async_best=best,
        mean_seconds=seconds,
        scores_within_noise=_within_noise(list(by_label.values())),
        staleness_equal=all(run.staleness_versions.max <= bound for run in runs),
        staleness_bound=bound,
    )


def _within_noise(groups: list[list[PolicyRun]]) -> bool:
    pooled = [
        (fmean(r.reward for r in of), math.hypot(*(r.reward_error for r in of)) / len(of))
        for of in groups
    ]
    return all(abs(a - b) <= NOISE * math.hypot(x, y) for a, x in pooled for b, y in pooled)
