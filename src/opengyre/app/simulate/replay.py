"""A recorded run played again under the policy that ran: simulated beside measured."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from msgspec.structs import replace as with_fields

from opengyre.app.report.lanes import Span, busy_share, lanes
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.fit import Fit
from opengyre.app.simulate.measured import Measured
from opengyre.app.simulate.stays import RolloutTimes
from opengyre.core.reasons import CellRole
from opengyre.sim.outcome import Outcome
from opengyre.sim.world import Setting, simulate
from opengyre.store.rows import EventRow


@dataclass(frozen=True)
class Compared:
    """One quantity."""

    name: str
    unit: str
    measured: float
    simulated: float

    @property
    def ratio(self) -> float | None:
        """Simulated over measured; None for a share, whose difference says more."""
        return self.simulated / self.measured if self.unit and self.measured else None


def scene_of_run(fit: Fit) -> Scene:
    """The run as a scene, each new group drawn from the recorded ones."""
    drawn = with_fields(fit.workload, recorded_in_order=False)
    return Scene(fit.run.plan, drawn, fit.machine)


def replay(fit: Fit) -> Outcome:
    """The recorded groups in their order, under the run's own plan and policy.

    A run that goes on had dispatched for steps that it has not taken yet; so its replay takes some of
    them too, and what is compared ends with the last step that was measured.
    """
    run = fit.run
    burst = run.plan.steps_per_burst
    dispatched_for = -(-len(run.steps) // burst) * burst + run.plan.staleness_steps
    plan = replace(run.plan, total_steps=min(run.planned_steps, dispatched_for))
    return simulate(
        Setting(plan=plan, policy=run.policy, workload=fit.workload, machine=fit.machine)
    )


def replayed_s(run: Measured, outcome: Outcome) -> float:
    """When the last step that was measured ended in the replay."""
    return outcome.steps[len(run.steps) - 1]


def step_s(run: Measured, outcome: Outcome | None = None) -> float:
    """Mean time of its undisturbed steps, as measured or in its replay."""
    ends = [step.at for step in run.steps] if outcome is None else outcome.steps
    return run.steps_s(ends) / len(run.undisturbed())


def compare(fit: Fit, outcome: Outcome) -> list[Compared]:
    """What both know. The measured idle share takes the fitted training speed, and calls that do not
    say on which cell they were as spread evenly over those in rollout."""
    run, steps = fit.run, len(fit.run.undisturbed())
    cells, simulated_s = len(run.plan.cells), replayed_s(fit.run, outcome)
    which = "all steps" if steps == len(run.steps) else f"{steps} steps without a stop"
    roles = lanes_of(outcome, cells, simulated_s)
    assert outcome.staleness is not None, "a simulation ended without a staleness summary"
    return [
        Compared("mean step time", "s", step_s(run), step_s(run, outcome)),
        Compared(which, "s", step_s(run) * steps, step_s(run, outcome) * steps),
        Compared("mean execution", "s", _execution_s(fit), outcome.execution_s),
        Compared("slowest of a group / mean", "×", _slowest(fit), outcome.slowest_over_mean),
        Compared("calls in flight, mean", "", *_in_flight(run, outcome)),
        *(
            Compared(
                f"cells in {role.value}", "", busy_share(run.spans, role), busy_share(roles, role)
            )
            for role in (CellRole.ROLLOUT, CellRole.TRAINING, CellRole.SWITCHING)
        ),
        Compared("cells idle", "", measured_idle(fit), idle_share(outcome, cells)),
        Compared(
            "staleness in steps, mean",
            "",
            fmean(run.staleness_steps()),
            outcome.staleness.steps.mean,
        ),
        Compared(
            "staleness in versions, mean",
            "",
            fmean(step.staleness_versions for step in run.steps),
            outcome.staleness.versions.mean,
        ),
    ]


def _execution_s(fit: Fit) -> float:
    wait = fit.workload.evaluation_s
    return fmean(one.ended - wait - one.began for one in fit.run.executions)


def _slowest(fit: Fit) -> float:
    wait = fit.workload.evaluation_s
    durations = [[one.ended - wait - one.began for one in g.executions] for g in fit.run.groups]
    return fmean(max(group) / fmean(group) for group in durations)


def _in_flight(run: Measured, outcome: Outcome) -> tuple[float, float]:
    until = run.seconds
    took = (min(call.ended, until) - call.began for call in run.all_calls if call.began < until)
    return sum(took) / until, (outcome.calls_s + outcome.tally.held_s) / outcome.seconds


def idle_share(outcome: Outcome, cells: int) -> float:
    """Of all cells' time: neither a call nor a micro-step."""
    busy = outcome.rollout_busy_s + outcome.training_busy_s
    return 1.0 - busy / outcome.seconds / cells


def measured_idle(fit: Fit) -> float:
    """The same of the recorded run, as far as its store tells."""
    run = fit.run
    busy = _spread_s(run) if any(not call.cells for call in run.all_calls) else _served_s(run)
    trained = sum(step.packed_tokens for step in run.steps) / fit.training.tokens_s
    return 1.0 - (busy + trained) / run.seconds / len(run.plan.cells)


def _served_s(run: Measured) -> float:
    """Cell-seconds with a call on the cell."""
    times = RolloutTimes(run.spans)
    stays = [stay for call in run.all_calls for stay in times.stays(call)]
    busy, until = 0.0, defaultdict[int, float](float)
    for stay in sorted(stays, key=lambda one: one.began):
        since, end = max(stay.began, until[stay.cell]), min(stay.ended, run.seconds)
        if end > since:
            busy, until[stay.cell] = busy + end - since, end
    return busy


def _spread_s(run: Measured) -> float:
    """The same where calls do not say on which cell they were."""
    changes: list[tuple[float, int, int]] = []
    for call in run.all_calls:
        if call.began < run.seconds:
            changes += [(call.began, 1, 0), (min(call.ended, run.seconds), -1, 0)]
    for span in run.spans:
        if span.role is CellRole.ROLLOUT:
            changes += [(span.start, 0, 1), (span.end, 0, -1)]
    at = busy = 0.0
    calls = cells = 0
    for when, more_calls, more_cells in sorted(changes):
        busy += (when - at) * min(calls, cells)
        at, calls, cells = when, calls + more_calls, cells + more_cells
    return busy


def lanes_of(
    outcome: Outcome, cells: int, until: float | None = None, *, every: int = 1
) -> list[Span]:
    """Roles of all cells, or every so manieth, until the last step, or some time; the standalone pool
    left out."""
    end = outcome.seconds if until is None else until
    mine = [
        EventRow(
            at=change.at,
            kind="role",
            fields={"cell": float(change.cell), "role": change.role.value},
        )
        for change in outcome.roles
        if change.cell < cells and change.cell % every == 0 and change.at < end
    ]
    return lanes(mine, end)


def level_events(
    outcome: Outcome, capacities: Sequence[int], most: int | None = None
) -> list[EventRow]:
    """Waterlevel and the room for it, as a run's store has them; evenly thinned to at most so many."""
    changes: list[tuple[float, int, int, CellRole | int]] = [
        (change.at, 0, change.cell, change.role) for change in outcome.roles
    ]
    changes += [(at, 1, -1, level) for at, level in outcome.waterlevel]
    every = -(-len(changes) // most) or 1 if most else 1
    room = [0] * len(capacities)
    level = total = 0
    rows = []
    for place, (at, _, cell, what) in enumerate(sorted(changes, key=lambda change: change[:2])):
        if isinstance(what, CellRole):
            total -= room[cell]
            room[cell] = capacities[cell] if what is CellRole.ROLLOUT else 0
            total += room[cell]
        else:
            level = what
        if place % every == 0:
            fields: dict[str, str | float] = {"waterlevel": float(level), "capacity": float(total)}
            rows.append(EventRow(at=at, kind="waterlevel", fields=fields))
    return rows
