"""Which of many plans is the fastest: a sieve first, then a few of them on fresh executions.

Invariant: all that are compared met the same executions, trial by trial. A trial that sorted plans out
measures none of them: whoever came first there was lucky there, too. And one plan is called faster than
another only where its gain stands out of how much the trials differ.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean, stdev

from opengyre.app.simulate.baselines import Choice, Result, run
from opengyre.app.simulate.build import HOUR_S, Scene
from opengyre.app.simulate.replay import idle_share
from opengyre.config.run import PolicyName
from opengyre.scheduler.base import SchedulePlan

BURSTS = (1, 2, 3, 4, 6, 8, 12, 16)
BUDGETS = (0, 1, 2, 3, 4, 6, 8)
"""mu and phi that are tried, as far as the staleness limit allows."""
EIGHTHS = tuple(eighth / 8 for eighth in range(1, 8))
"""Shares of the cells that train under a fixed split, where cells are many."""
MOVING: tuple[PolicyName, ...] = ("elastic", "forecast")
"""Policies whose cells change sides one by one; what elasticity means here."""
POLICIES: tuple[PolicyName, ...] = (*MOVING, "colocate", "async")
KEPT = (8, 4)
"""Of a sieve, after its first and its second trial: in a trial plans err by some hundredths, the first
few lie closer together than that, and the last ones do not matter."""
SLACK = 0.02
"""Of a mean staleness: its noise from seed to seed."""
ERRORS = 1.0
"""Standard errors by which a gain must be above nothing: by chance alone one of six is."""


@dataclass(frozen=True)
class Candidate:
    """A plan, for any of the worlds."""

    policy: PolicyName
    burst: int
    staleness: int
    cells: int | None
    """None: scale times a world's own."""
    scale: float = 1.0
    training_share: float = 0.0
    """Under async: of the cells."""

    def cells_in(self, scene: Scene) -> int:
        """How many in this world."""
        return self.cells or max(1, round(self.scale * len(scene.plan.cells)))

    def training_in(self, scene: Scene) -> int:
        """Cells that always train, of these."""
        cells = self.cells_in(scene)
        return min(max(1, round(self.training_share * cells)), max(1, cells - 1))

    def run(self, scene: Scene, seed: int, steps: int) -> Result:
        """Simulate it, over at least so many steps: whole bursts, two of them or more."""
        bursts = max(2, math.ceil(steps / self.burst))
        plan = replace(
            scene.plan,
            cells=(scene.plan.cells[0],) * self.cells_in(scene),
            steps_per_burst=self.burst,
            staleness_steps=self.staleness,
        )
        choice = Choice(self.policy, self.training_in(scene))
        return run(replace(scene, plan=plan), choice, seed, bursts * self.burst)

    def size(self) -> float:
        """To order by cells."""
        return float(self.cells) if self.cells else self.scale


def candidate_of(policy: PolicyName, plan: SchedulePlan) -> Candidate:
    """What runs."""
    cells = len(plan.cells)
    share = plan.training_cells / cells if policy == "async" else 0.0
    mu, phi = plan.steps_per_burst, plan.staleness_steps
    return Candidate(policy, mu, phi, cells, training_share=share)


def candidates(size: Candidate, cells: int, limit: int) -> Iterator[Candidate]:
    """Every plan on so many cells whose oldest group, as a rule, is no older than the limit, in steps."""
    splits = [count / cells for count in range(1, cells)]
    if len(splits) > len(EIGHTHS):
        splits = list(EIGHTHS)
    for burst, budget in product(BURSTS, BUDGETS):
        if burst + budget - 1 > limit:
            continue
        own = replace(size, burst=burst, staleness=budget)
        for policy in (*MOVING, "colocate"):
            yield replace(own, policy=policy)
        for share in splits:
            yield replace(own, policy="async", training_share=share)


@dataclass(frozen=True)
class Trial:
    """Executions to meet."""

    scene: Scene
    seed: int
    steps: int

    def of(self, candidate: Candidate) -> Result:
        """How it fares."""
        return candidate.run(self.scene, self.seed, self.steps)


@dataclass(frozen=True)
class Measure:
    """A candidate on every trial."""

    candidate: Candidate
    rates: tuple[float, ...]
    """Steps an hour, one of each trial."""
    idle: float
    training: float
    """Mean shares of cell time."""
    staleness: float
    """In optimiser steps: mean over trials of the mean."""
    staleness_p95: int
    """The largest of any trial."""

    @property
    def mean(self) -> float:
        """Steps an hour."""
        return fmean(self.rates)

    @property
    def spread(self) -> float:
        """Standard deviation over trials."""
        return stdev(self.rates) if len(self.rates) > 1 else 0.0

    @property
    def low(self) -> float:
        """What it does in all but the worse sixth of them, if they are as from a bell curve."""
        return self.mean - self.spread

    def over(self, other: "Measure") -> tuple[float, float]:
        """Times as fast: mean and standard deviation over trials, each against itself."""
        ratios = [a / b for a, b in zip(self.rates, other.rates, strict=True)]
        return fmean(ratios), stdev(ratios) if len(ratios) > 1 else 0.0

    def no_older_than(self, other: "Measure") -> bool:
        """Whether its data are no older, on average and at the 95th percentile."""
        mine = self.staleness, self.staleness_p95
        return no_older(mine, (other.staleness, other.staleness_p95))

    def surely_over(self, other: "Measure") -> float:
        """Times as fast as the other, less what may be chance: above 1 it is faster."""
        ratio, spread = self.over(other)
        return ratio - ERRORS * spread / math.sqrt(len(self.rates))


def measure(candidate: Candidate, trials: Sequence[Trial]) -> Measure:
    """Run it on all of them."""
    results = [(trial.of(candidate), candidate.cells_in(trial.scene)) for trial in trials]
    stale = [staleness_of(result) for result, _ in results]
    return Measure(
        candidate,
        tuple(rate(result) for result, _ in results),
        fmean(idle_share(result.outcome, cells) for result, cells in results),
        fmean(
            result.outcome.training_busy_s / result.outcome.seconds / cells
            for result, cells in results
        ),
        fmean(mean for mean, _ in stale),
        max(p95 for _, p95 in stale),
    )


def sieve(
    candidates: Sequence[Candidate],
    trials: Sequence[Trial],
    keeps: Callable[[Trial, Result], bool],
) -> list[Candidate]:
    """Those that keep the limit, the fastest first: the first ones by all trials, those that a trial
    sorted out behind them."""
    tried = [(0.0, candidate) for candidate in candidates]
    behind: list[Candidate] = []
    for number, trial in enumerate(trials):
        results = [(score, one, trial.of(one)) for score, one in tried]
        tried = [
            (score + math.log(rate(result)), one)
            for score, one, result in results
            if keeps(trial, result)
        ]
        tried.sort(key=lambda entry: -entry[0])
        kept = KEPT[min(number, len(KEPT) - 1)] if number + 1 < len(trials) else len(tried)
        behind = [one for _, one in tried[kept:]] + behind
        tried = tried[:kept]
    return [one for _, one in tried] + behind


def rate(result: Result) -> float:
    """Steps an hour."""
    return len(result.outcome.steps) * HOUR_S / result.outcome.seconds


def no_older(ages: tuple[float, int], than: tuple[float, int]) -> bool:
    """Of mean and 95th percentile."""
    return ages[0] <= than[0] * (1 + SLACK) and ages[1] <= than[1]


def staleness_of(result: Result) -> tuple[float, int]:
    """In optimiser steps: mean and 95th percentile."""
    staleness = result.outcome.staleness
    assert staleness is not None, "a finished simulation has its staleness"
    return staleness.steps.mean, staleness.steps.p95
