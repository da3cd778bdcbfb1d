"""What if: the same agents and cells under another plan, against the plan that ran.

Invariant: everything is compared on the same seeds, on groups drawn from the recorded ones, over the
same number of optimiser steps; only what a line names differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from statistics import fmean, stdev
from typing import get_args

from opengyre.app.simulate.baselines import Choice, run
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.replay import idle_share
from opengyre.config.run import PolicyName
from opengyre.core.errors import UserError
from opengyre.sim.outcome import Outcome

SEEDS = 5
"""Enough for a spread; each draws other groups."""
MOST_CELLS, MOST_STEPS = 100_000, 1000
"""Of a what-if, the second for a burst and for a staleness budget: beyond them a simulation does not
end today, and nobody has asked for them but by a slip of the finger."""
MOST_SPLITS = 8
"""Of the usual questions: a run of many cells is asked about evenly spread ones."""
LEAST_BURSTS = 4
"""Of the longest burst compared: the first one, which fills the cells, must not decide."""


@dataclass(frozen=True)
class Change:
    """What differs from the plan that ran; None: nothing."""

    cells: int | None = None
    policy: PolicyName | None = None
    training_cells: int | None = None
    burst: int | None = None
    staleness: int | None = None

    def __bool__(self) -> bool:
        return any(
            value is not None
            for value in (self.cells, self.policy, self.training_cells, self.burst, self.staleness)
        )

    def check(self) -> None:
        """Raises UserError for what no plan can have."""
        for name, value, least, most in (
            ("--cells", self.cells, 1, MOST_CELLS),
            ("--training-cells", self.training_cells, 1, MOST_CELLS),
            ("--burst", self.burst, 1, MOST_STEPS),
            ("--staleness", self.staleness, 0, MOST_STEPS),
        ):
            if value is not None and value < least:
                raise UserError(f"{name} of at least {least}", str(value), f"raise {name}")
            if value is not None and value > most:
                raise UserError(f"{name} of at most {most:,}", f"{value:,}", f"lower {name}")


def change_of(
    cells: int | None,
    policy: str | None,
    training_cells: int | None,
    burst: int | None,
    staleness: int | None,
) -> Change:
    """From the command line. Raises UserError."""
    names: dict[str, PolicyName] = {name: name for name in get_args(PolicyName)}
    if policy is not None and policy not in names:
        near = get_close_matches(policy, names, 1)
        hint = f"did you mean {near[0]}?" if near else "choose one of them"
        raise UserError(f"--policy one of {', '.join(names)}", policy, hint)
    chosen = names[policy] if policy is not None else None
    change = Change(cells, chosen, training_cells, burst, staleness)
    change.check()
    return change


@dataclass(frozen=True)
class Case:
    """One line of the table: a scene under a choice."""

    name: str
    scene: Scene
    choice: Choice


@dataclass(frozen=True)
class Answer:
    """A case, simulated."""

    case: Case
    outcomes: tuple[Outcome, ...]
    """One a seed."""
    speedup: float
    """Over the first case: mean over seeds of the ratio of times."""
    speedup_spread: float
    """Standard deviation of that ratio over seeds."""

    @property
    def step_s(self) -> float:
        """Mean time of a step."""
        return fmean(outcome.seconds / len(outcome.steps) for outcome in self.outcomes)

    @property
    def idle(self) -> float:
        """Mean share of cell time with neither a call nor a micro-step."""
        return fmean(idle_share(one, len(self.case.scene.plan.cells)) for one in self.outcomes)

    @property
    def staleness(self) -> tuple[float, int]:
        """In optimiser steps: mean, and the largest 95th percentile of any seed."""
        spreads = [one.staleness.steps for one in self.outcomes if one.staleness is not None]
        return fmean(one.mean for one in spreads), max(one.p95 for one in spreads)

    @property
    def truncated(self) -> int:
        """Executions that the harness timeout ended, over all seeds."""
        return sum(outcome.tally.truncated for outcome in self.outcomes)


def changed(scene: Scene, choice: Choice, change: Change) -> tuple[Scene, Choice]:
    """The scene and the choice with a change. Raises UserError."""
    change.check()
    plan = scene.plan
    cells = (plan.cells[0],) * (change.cells or len(plan.cells))
    policy = change.policy or choice.policy
    training = change.training_cells or choice.training_cells
    if change.training_cells is not None and policy != "async":
        raise UserError(
            "--training-cells beside --policy async",
            f"policy {policy}, whose cells change sides",
            "add --policy async, or leave out --training-cells",
        )
    if policy == "async" and training >= len(cells):
        raise UserError(
            "a split that leaves cells on both sides",
            f"{training} of {len(cells)} cells in training",
            f"choose --training-cells from 1 to {len(cells) - 1}"
            if len(cells) > 1
            else "choose more --cells",
        )
    staleness = plan.staleness_steps if change.staleness is None else change.staleness
    other = replace(
        plan,
        cells=cells,
        steps_per_burst=change.burst or plan.steps_per_burst,
        staleness_steps=staleness,
    )
    return replace(scene, plan=other), Choice(policy, training, choice.streaming)


def usual_cases(scene: Scene, choice: Choice) -> list[Case]:
    """As it ran; twice the cells; the other policies; other bursts."""
    plan = scene.plan
    cells = len(plan.cells)
    cases = [Case("as it ran", scene, choice)]
    twice = Change(cells=2 * cells)
    cases.append(Case(f"{2 * cells} cells", *changed(scene, choice, twice)))
    others = [Choice("elastic"), Choice("forecast"), Choice("colocate")]
    splits = range(1, cells)[:: -(-(cells - 1) // MOST_SPLITS) or 1]
    others += [Choice("async", training) for training in splits]
    cases += [Case(str(other), scene, other) for other in others if other != choice]
    burst = plan.steps_per_burst
    for other in sorted({max(1, burst // 2), 2 * burst} - {burst}):
        name = f"bursts of {other} instead of {burst}"
        cases.append(Case(name, *changed(scene, choice, Change(burst=other))))
    return cases


def answer(cases: Sequence[Case], seeds: int = SEEDS, seed: int = 0) -> list[Answer]:
    """Simulate every case on the same seeds; ratios are against the first."""
    steps = _horizon(cases)
    drawn = range(seed * seeds + 1, (seed + 1) * seeds + 1)
    runs = [
        tuple(run(case.scene, case.choice, one, steps).outcome for one in drawn) for case in cases
    ]
    answers = []
    for case, outcomes in zip(cases, runs, strict=True):
        ratios = [base.seconds / mine.seconds for base, mine in zip(runs[0], outcomes, strict=True)]
        spread = stdev(ratios) if len(ratios) > 1 else 0.0
        answers.append(Answer(case, outcomes, fmean(ratios), spread))
    return answers


def _horizon(cases: Sequence[Case]) -> int:
    longest = max(case.scene.plan.steps_per_burst for case in cases)
    wanted = max(LEAST_BURSTS * longest, *(case.scene.plan.total_steps for case in cases), 1)
    return -(-wanted // longest) * longest
