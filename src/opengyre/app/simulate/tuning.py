"""The plan that is the fastest for a case, data being no older: policy, split, burst and staleness budget.

Invariant: what is chosen was faster than the case's own plan on trials that chose nobody, by more than
they differ, and its data were no older over all of these; else the case keeps its own plan. Nothing is
ever judged here: trials are executions of their own.
"""

from collections.abc import Callable, Sequence

from opengyre.app.simulate.baselines import Result
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.contest import (
    Candidate,
    Measure,
    Trial,
    candidates,
    measure,
    no_older,
    sieve,
    staleness_of,
)
from opengyre.config.run import PolicyName

PILOTS = 2
"""Short runs that sort the plans."""
PILOT_STEPS = 12
"""Of these."""
TRIALS = 4
"""On which the finalists are compared with the own plan: with fewer a lucky one stands out too often."""
MOST_STEPS = 24
"""Of a trial, where a case has more."""
FINALISTS = 3
"""Beyond them none was chosen, in settings that this was formed on."""


def tuned(
    scene: Scene, own: Candidate, policies: Sequence[PolicyName], seed_of: Callable[[int], int]
) -> Candidate:
    """The plan to run; seed_of: of the n-th trial."""
    steps = scene.plan.total_steps
    seeds = [seed_of(turn) for turn in range(PILOTS + TRIALS)]
    pilots = [Trial(scene, seed, min(steps, PILOT_STEPS)) for seed in seeds[:PILOTS]]
    trials = [Trial(scene, seed, min(steps, MOST_STEPS)) for seed in seeds[PILOTS:]]
    ages = {trial.seed: staleness_of(trial.of(own)) for trial in pilots}
    limit = max(p95 for _, p95 in ages.values())
    every = [
        one
        for one in candidates(own, own.cells_in(scene), limit)
        if one.policy in policies and one != own and steps % one.burst == 0
    ]

    def as_fresh(trial: Trial, result: Result) -> bool:
        return no_older(staleness_of(result), ages[trial.seed])

    first = sieve(every, pilots, as_fresh)[:FINALISTS]
    before = measure(own, trials)
    return chosen(before, [measure(one, trials) for one in first]).candidate


def chosen(own: Measure, others: Sequence[Measure]) -> Measure:
    """The one that is the most surely faster than the own plan; that one, if none is."""
    fresh = [one for one in others if one.no_older_than(own) and one.surely_over(own) > 1.0]
    return max(fresh, key=lambda one: one.surely_over(own), default=own)
