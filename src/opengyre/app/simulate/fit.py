"""From measurements to what the simulator takes: scripts of the executions, and the machine.

Invariant: every number comes from the run's own store; what could not be told is in `notes`.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, pstdev

from opengyre.app.report.lanes import Span
from opengyre.app.simulate.load import LoadFit, fit_load
from opengyre.app.simulate.measured import Measured, MeasuredExecution, MeasuredGroup
from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CORE
from opengyre.sim.script import Script, Turn
from opengyre.sim.workload import Machine, Workload

FASTEST_S = 1e-6
"""Seconds a token where the fit says 0: a rate must be finite, and nothing measured is that fast."""
SPEEDS = 400
"""Training speeds that are tried, spaced evenly in their logarithm."""
SPEED_RANGE = 1e4
"""Of the fastest tried to the slowest: from a cell that trained all its time to one nearly idle."""

CROWD = 2.0
"""Calls at once on a cell: with fewer, nothing tells how they slow one another down."""
AS_GOOD = 1.1
"""Where steps are all alike, speed and step time cannot be told apart: the slowest speed whose error
is within this factor of the least is taken, since tokens cost more than the optimiser's step."""


@dataclass(frozen=True)
class TrainingFit:
    """One training cell."""

    tokens_s: float
    step_s: float
    error_s: float
    """Root of the mean square distance of a step's end from what these two say, given the step before it."""


@dataclass
class Fit:
    """What a run says about its world."""

    run: Measured
    workload: Workload
    machine: Machine
    load: LoadFit
    training: TrainingFit
    notes: list[str] = field(default_factory=list)


def fit(run: Measured) -> Fit:
    """Fit it. Raises UserError when the run made no model call."""
    if not run.calls:
        raise UserError(
            "model calls in the run", "none", "pass a run whose agents called the model"
        )
    notes: list[str] = []
    load = fit_load(run)
    training = fit_training(run)
    evaluation_s = _evaluation_s(run, notes)
    machine = Machine(
        decode_alone_tokens_s=1 / max(load.own_s + load.shared_s, FASTEST_S),
        decode_full_tokens_s=1 / max(load.shared_s, FASTEST_S),
        prefill_tokens_s=_prefill(load),
        train_tokens_s=training.tokens_s,
        micro_step_tokens=float(run.token_budget),
        step_s=training.step_s,
        publish_s=_publish_s(run, notes),
        to_training_s=_switch_s(run, CellRole.TRAINING),
        to_rollout_s=_switch_s(run, CellRole.ROLLOUT),
    )
    workload = _workload(run, load, evaluation_s)
    _remark(run, load, notes)
    return Fit(run, workload, machine, load, training, notes)


def _prefill(load: LoadFit) -> float:
    """So that a prompt token weighs what the fit says."""
    if not load.prompt_weight:
        return math.inf
    return 1 / max(load.shared_s, FASTEST_S) / load.prompt_weight


# -- executions --------------------------------------------------------------------------------------


def _workload(run: Measured, load: LoadFit, evaluation_s: float) -> Workload:
    shares = _trained_shares(run)
    scripts = tuple(
        tuple(
            script_of(one, load.call_tokens, evaluation_s, shares.get(group.group_id, 0.0))
            for one in group.executions
        )
        for group in run.groups
    )
    every = [script for group in scripts for script in group]
    turns = [turn for script in every for turn in script.turns]
    between = [turn.wait_s for script in every for turn in script.turns[1:]] or [0.0]
    longest = max(one.ended - evaluation_s - one.began for one in run.executions)
    contexts = sum(one.context_tokens for one in run.executions if one.trained)
    return Workload(
        calls=len(turns) / len(every),
        answer_tokens=fmean(turn.answer_tokens for turn in turns),
        observation_tokens=_observation_tokens(every),
        first_prompt_tokens=fmean([s.turns[0].prompt_tokens for s in every if s.turns]),
        tool_s=fmean(between),
        task_spread=_task_spread(scripts),
        member_spread=_member_spread(scripts),
        answer_spread=_spread([turn.answer_tokens for turn in turns]),
        tool_spread=_spread(between),
        start_s=fmean([s.turns[0].wait_s for s in every if s.turns]),
        stop_s=fmean(script.stop_s for script in every),
        limit_s=run.limit_s if longest <= run.limit_s else math.inf,
        evaluation_s=evaluation_s,
        trained_share=sum(s.trained_tokens for s in every) / max(1, contexts),
        no_spread_share=fmean(not any(one.trained for one in g.executions) for g in run.groups),
        recorded=scripts,
    )


def script_of(
    execution: MeasuredExecution, call_tokens: float, evaluation_s: float, trained_share: float
) -> Script:
    """What it did, and how long that took outside of the model."""
    turns = []
    since = execution.began
    for call in execution.calls:
        wait, answer = max(0.0, call.began - since), call.answer_tokens + call_tokens
        turns.append(Turn(wait, float(call.prompt_tokens), float(call.new_tokens), answer))
        since = max(since, call.ended)
    return Script(
        turns=tuple(turns),
        stop_s=max(0.0, execution.ended - evaluation_s - since),
        trained_tokens=trained_share * execution.context_tokens if execution.trained else 0.0,
    )


def _trained_shares(run: Measured) -> dict[str, float]:
    """Packed tokens over context tokens of trained executions, by group; equal within a step."""
    groups = {group.group_id: group for group in run.groups}
    shares = {}
    for step in run.steps:
        mine = [groups[name] for name in step.groups if name in groups]
        contexts = sum(one.context_tokens for g in mine for one in g.executions if one.trained)
        for group in mine:
            shares[group.group_id] = step.packed_tokens / contexts if contexts else 0.0
    return shares


def _observation_tokens(scripts: Sequence[Script]) -> float:
    grown = [
        max(0.0, after.prompt_tokens - before.prompt_tokens - before.answer_tokens)
        for script in scripts
        for before, after in pairwise(script.turns)
    ]
    return fmean(grown or [0.0])


def _spread(values: Sequence[float]) -> float:
    logs = [math.log(value) for value in values if value > 0]
    return pstdev(logs) if len(logs) > 1 else 0.0


def _task_spread(groups: Sequence[Sequence[Script]]) -> float:
    return _spread([fmean(len(script.turns) for script in group) for group in groups])


def _member_spread(groups: Sequence[Sequence[Script]]) -> float:
    inside = [_spread([float(len(script.turns)) for script in group]) for group in groups]
    return math.sqrt(fmean(spread**2 for spread in inside))


def _evaluation_s(run: Measured, notes: list[str]) -> float:
    """Mean time from a program's end to its verdict: ends are where the waterlevel falls.

    What had no verdict when the run was stopped has its end twice: so they are told apart by stops.
    """
    falls = [
        (at, before - level) for (_, before), (at, level) in pairwise(run.levels) if level < before
    ]
    ends = [at for at, count in falls for _ in range(count)]
    verdicts = sorted(one.ended for one in run.executions)
    pairs: list[tuple[float, float]] = []
    missing = 0
    edges = [-math.inf, *(stop.at for stop in run.stops), math.inf]
    for since, until in pairwise(edges):
        mine = [at for at in ends if since < at <= until]
        told = [at for at in verdicts if since < at <= until]
        pairs += zip(mine, told, strict=False)
        missing += (
            abs(len(told) - len(mine)) if until == math.inf else max(0, len(told) - len(mine))
        )
    if missing:
        notes.append(
            f"the waterlevel falls {len(ends)} times for {len(verdicts)} executions (a run that goes "
            "on): the time to a verdict is less certain"
        )
    return max(0.0, fmean([verdict - end for end, verdict in pairs] or [0.0]))


# -- machine -----------------------------------------------------------------------------------------


def _switch_s(run: Measured, role: CellRole) -> float:
    """Mean time of a switch to a role; 0 when there was none. One that a stop cut is none."""
    cut = {stop.at for stop in run.stops}
    found = []
    for before, after in pairwise(run.spans):
        arrives = before.cell == after.cell and after.role is role and before.end not in cut
        if arrives and before.role is CellRole.SWITCHING:
            found.append(before.end - before.start)
    return fmean(found or [0.0])


def _publish_s(run: Measured, notes: list[str]) -> float:
    """Mean time from a burst's last step to the dispatches under its weights, saving included. One that
    a stop cut is none."""
    found, cut = [], 0
    for version in sorted({group.version for group in run.groups}):
        first = min(group.dispatched for group in run.groups if group.version == version)
        steps = [step.at for step in run.steps if step.version < version]
        if steps and any(max(steps) <= stop.at <= first for stop in run.stops):
            cut += 1
        elif steps:
            found.append(max(0.0, first - max(steps)))
    if cut and not found:
        notes.append("every publication was cut by a stop: its time is not known, and taken as 0")
    return fmean(found or [0.0])


class _TrainingTime:
    """Cell-seconds in training since 0, and back."""

    def __init__(self, spans: Sequence[Span]) -> None:
        mine = [span for span in spans if span.role is CellRole.TRAINING]
        changes = sorted([(s.start, 1) for s in mine] + [(s.end, -1) for s in mine])
        self._times, self._sums, self._cells = [0.0], [0.0], [0]
        for at, change in changes:
            self._sums.append(self._sums[-1] + self._cells[-1] * (at - self._times[-1]))
            self._times.append(at)
            self._cells.append(self._cells[-1] + change)

    def worked(self, at: float) -> float:
        """Cell-seconds until a time."""
        place = max(0, bisect_left(self._times, at) - 1)
        return self._sums[place] + self._cells[place] * (at - self._times[place])

    def when(self, worked: float) -> float:
        """The first time with so many cell-seconds; beyond all of them, as if one cell went on."""
        place = bisect_left(self._sums, worked) - 1
        if place < 0:
            return 0.0
        if self._cells[place] == 0:
            return self._times[place] + worked - self._sums[place]
        return self._times[place] + (worked - self._sums[place]) / self._cells[place]


@dataclass(frozen=True)
class _Work:
    """A step: what came when."""

    arrivals: tuple[tuple[float, float], ...]
    """(time, tokens), in order."""
    earliest: float
    """When the core could step at the earliest."""
    at: float
    """Its end."""


def fit_training(run: Measured) -> TrainingFit:
    """Speed and step time with which every step, given the one before it, ends when it did."""
    time = _TrainingTime(run.spans)
    works = [work for work in _works(run) if work.arrivals]
    if not works:
        return TrainingFit(1 / FASTEST_S, 0.0, 0.0)
    most = sum(tokens for work in works for _, tokens in work.arrivals)
    slowest = most / max(time.worked(run.seconds), FASTEST_S)
    fits = [_at_speed(works, time, slowest * SPEED_RANGE ** (i / SPEEDS)) for i in range(SPEEDS)]
    even = [one for one in fits if one.step_s >= 0] or [replace(fits[-1], step_s=0.0)]
    good = AS_GOOD * min(one.error_s for one in even)
    return next(one for one in even if one.error_s <= good)


def _at_speed(works: Sequence[_Work], time: _TrainingTime, tokens_s: float) -> TrainingFit:
    rests = [work.at - _computed(work, time, tokens_s) for work in works]
    step_s = fmean(rests)  # below 0: at this speed steps would end later than they did
    return TrainingFit(tokens_s, step_s, math.sqrt(fmean((rest - step_s) ** 2 for rest in rests)))


def _computed(work: _Work, time: _TrainingTime, tokens_s: float) -> float:
    """When all micro-steps are done and the core is there, if training cells share them evenly."""
    done = 0.0
    for at, tokens in work.arrivals:
        done = max(done, time.worked(at)) + tokens / tokens_s
    return max(time.when(done), work.earliest)


def _works(run: Measured) -> list[_Work]:
    groups = {group.group_id: group for group in run.groups}
    opened = _opened(run.groups)
    core = [s for s in run.spans if s.cell == CORE and s.role is CellRole.TRAINING]
    works, before = [], 0.0
    for step in run.steps:
        # What was computed of a step when the run was stopped is computed anew.
        anew = [stop.at for stop in run.stops if stop.at < step.at]
        begun = max(before, opened.get(step.version, 0.0), *anew)
        mine = [groups[name] for name in step.groups if name in groups]
        contexts = {
            g.group_id: sum(one.context_tokens for one in g.executions if one.trained) for g in mine
        }
        whole = sum(contexts.values())
        arrivals = sorted(
            (max(begun, g.ready), step.packed_tokens * contexts[g.group_id] / whole)
            for g in mine
            if contexts[g.group_id]
        )
        joined = [span.start for span in core if span.start < step.at]
        works.append(_Work(tuple(arrivals), max([begun, *joined[-1:]]), step.at))
        before = step.at
    return works


def _opened(groups: Sequence[MeasuredGroup]) -> dict[int, float]:
    """When each version was first dispatched under."""
    opened: dict[int, float] = {}
    for group in groups:
        at = opened.get(group.version, math.inf)
        opened[group.version] = min(at, group.dispatched)
    return opened


# -- remarks -----------------------------------------------------------------------------------------


def _remark(run: Measured, load: LoadFit, notes: list[str]) -> None:
    overlapping = sum(
        after.began < before.ended
        for one in run.executions
        for before, after in pairwise(one.calls)
    )
    if overlapping:
        notes.append(
            f"{overlapping} of {len(run.calls)} calls began while another of their execution ran "
            "(sub-agents); the simulator plays them one after another"
        )
    if run.stops:
        notes.append(_stop_words(run))
    if len(run.steps) < run.planned_steps:
        notes.append(
            f"the run took {len(run.steps)} of its {run.planned_steps} steps (it goes on, or was "
            "stopped); what they took is compared"
        )
    if not any(step.packed_tokens for step in run.steps):
        notes.append("no step had anything to train on: how fast cells train is not known")
    if any(span.role is CellRole.LOST for span in run.spans):
        notes.append("cells were lost in the run; the replay loses none")
    if load.curve[-1].at_once < CROWD:
        notes.append(
            f"even the busiest fifth of the calls had {load.curve[-1].at_once:.1f} at once on a cell: "
            "how fast more of them would be is a guess"
        )
    if load.left_out:
        notes.append(
            f"{load.left_out} calls met a change of roles, were given up, or ended just before a stop: "
            "they say nothing about speed"
        )
    if load.spread:
        notes.append(
            f"{load.spread} of {load.used} calls do not say which cell answered them (a store of an "
            "older version): they are taken as spread evenly over the cells in rollout"
        )


def _stop_words(run: Measured) -> str:
    count, quiet = len(run.stops), len(run.undisturbed())
    times = "once" if count == 1 else f"{count} times"
    took = ", ".join(f"{stop.seconds:.1f}" for stop in run.stops)
    kept = f"The {quiet} of {len(run.steps)} steps of bursts without a stop are compared"
    if quiet == len(run.steps):
        kept = "No burst is without one: all steps are compared, with what was done twice"
    return (
        f"the run was stopped {times}: {took} s from the last sign of life to the next dispatch are taken "
        f"out of all times. {run.begun_anew} executions that had made calls began anew: they are "
        f"played from there, and their earlier calls only used the cells. {kept}. The last "
        "configuration is taken for all of the run"
    )
