"""What one run of the bench came to, from its store: times, shares, staleness, rewards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from msgspec import Struct

from opengyre.app.report.lanes import lanes
from opengyre.app.train import Outcome
from opengyre.core.reasons import CellRole, VerdictKind
from opengyre.core.records import ExecutionRecord
from opengyre.scheduler.staleness import Spread
from opengyre.store.rows import StepRow
from opengyre.store.run import RunStore


class PolicyRun(Struct, kw_only=True):
    """One run. Made by figures_of; read by the table and the JSON file. Shares are of all cells' time."""

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
    token_age_versions: float
    """Versions between the weights that sampled a token and those that it was first trained on: mean
    over all sampled tokens. Queued executions start later and are younger than their dispatch says."""
    reward: float
    reward_error: float
    """Standard error of the mean."""
    reward_last: float
    """Mean over the last step's groups."""
    role_switches: int
    switch_s: float
    """Mean time of a move to training; its cell neither rolls out nor trains."""
    moved_with_kv: int
    recomputed: int
    harness_visible_errors: int
    packed_tokens: int
    """Trained on."""


@dataclass(frozen=True)
class CpuUse:
    """CPU seconds from the first dispatch to the end of the last step."""

    cells: int
    """How many there are."""
    by_role: dict[str, float]
    """Of the cells' processes."""
    beside: float
    """Of everything else that the run started, and of the controller."""


@dataclass(frozen=True)
class Window:
    """From the first dispatch to the end of the last step, in seconds of the run's clock."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def figures_of(
    store: RunStore, outcome: Outcome, used: CpuUse, label: str, repeat: int
) -> PolicyRun:
    """Gather them. The run must be whole."""
    steps = store.steps()
    began = next(e.at for e in store.events("phase") if e.fields["name"] == "training")
    window = Window(began, steps[-1].at)
    whole = window.seconds * used.cells
    groups = _by_group(store.executions())
    rewards = _rewards(groups, steps)
    busy = {role: seconds / whole for role, seconds in used.by_role.items()}
    durations = [[r.ended_at - r.started_at for r in group] for group in groups.values()]
    moves = [float(e.fields["seconds"]) for e in store.events("switch")]
    assert outcome.staleness is not None, "training ended without a scheduler"
    return PolicyRun(
        label=label,
        repeat=repeat,
        seconds=window.seconds,
        steps=len(steps),
        executions=sum(map(len, groups.values())),
        excluded=sum(r.verdict.kind is not VerdictKind.SCORED for r in store.executions()),
        role_share=_role_share(store, window, used.cells),
        busy_share=busy,
        idle_share=1 - sum(busy.values()),
        beside_share=used.beside / whole,
        execution_s=fmean(x for group in durations for x in group),
        slowest_over_mean=fmean(max(group) / fmean(group) for group in durations),
        staleness_steps=outcome.staleness.steps,
        staleness_versions=outcome.staleness.versions,
        token_age_versions=_token_age(store, groups, steps),
        reward=fmean(rewards),
        reward_error=stdev(rewards) / math.sqrt(len(rewards)),
        reward_last=fmean(_rewards(groups, steps[-1:])),
        role_switches=outcome.role_switches,
        switch_s=fmean(moves or [0.0]),
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


def _token_age(
    store: RunStore, groups: dict[str, list[ExecutionRecord]], steps: Sequence[StepRow]
) -> float:
    tokens = ages = 0
    for row in steps:
        for record in (record for name in row.groups for record in groups[name]):
            for span in (
                span for call in store.calls(record.execution_id) for span in call.versions
            ):
                tokens += span.end - span.start
                ages += (span.end - span.start) * (row.version - span.version)
    return ages / tokens if tokens else 0.0


def _role_share(store: RunStore, window: Window, cells: int) -> dict[str, float]:
    """Of all cells' wall time; a cell without an event rolled out all the time."""
    events = [event for event in store.events("role") if event.at <= window.ended]
    still = cells - len({event.fields["cell"] for event in events})
    shares = {role.value: 0.0 for role in CellRole}
    shares[CellRole.ROLLOUT.value] = still / cells
    for span in lanes(events, window.ended):
        inside = max(0.0, span.end - max(span.start, window.began))
        shares[span.role.value] += inside / window.seconds / cells
    return {role: share for role, share in shares.items() if share}
