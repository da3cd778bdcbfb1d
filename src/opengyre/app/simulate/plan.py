"""Which cells, policy, split, mu and phi reach a target.

Invariant: every plan that is recommended was simulated on every world and seed of the search, kept the
staleness limit on all of them, and is compared with the others on the same ones. Short runs on one
world and one seed sort the candidates; only finalists are run in full.
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
from opengyre.core.errors import UserError

BURSTS = (1, 2, 3, 4, 6, 8, 12, 16)
BUDGETS = (0, 1, 2, 3, 4, 6, 8)
"""mu and phi that are tried, as far as the staleness limit allows."""
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Cells that are tried; finer is less than what seeds differ by."""
SCALES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Times the cells of a preset, whose sets differ in their number."""
EIGHTHS = tuple(eighth / 8 for eighth in range(1, 8))
"""Shares of the cells that train under a fixed split, where cells are many."""
PILOT_STEPS = 12
"""Of the short runs, rounded up to whole bursts, at least two."""
FULL_STEPS = 24
"""Of the finalists' runs, likewise."""
FINALISTS = 2
"""Of each policy at each number of cells: the pilot of one seed errs by less than these differ."""
MOVING: tuple[PolicyName, ...] = ("elastic", "forecast")
"""Policies whose cells change sides one by one; what elasticity means here."""
FLAT = 1.01
"""Times as fast as with at most half the cells: below it more cells do not help, and none are tried."""
MOST_CELLS = 4096
"""Sixteen times what is tried by itself; a search among more would take days."""
PAYS = 1.03
"""Times as fast as the best other policy: below it elasticity is not worth its switches."""


@dataclass(frozen=True)
class Goal:
    """What is wanted."""

    staleness_limit: int
    """95th percentile of a group's age at its consumption, in optimiser steps."""
    steps_per_hour: float | None = None
    """None: as fast as the cells allow."""
    cells: int | None = None
    """So many and no others."""
    most_cells: int | None = None


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


@dataclass(frozen=True)
class Measure:
    """A candidate on every world and seed."""

    candidate: Candidate
    rates: tuple[float, ...]
    """Steps an hour, one of each world and seed."""
    idle: float
    training: float
    """Mean shares of cell time."""
    staleness_p95: int
    """The largest of any world and seed."""

    @property
    def mean(self) -> float:
        """Steps an hour."""
        return fmean(self.rates)

    @property
    def spread(self) -> float:
        """Standard deviation over worlds and seeds."""
        return stdev(self.rates) if len(self.rates) > 1 else 0.0

    @property
    def low(self) -> float:
        """What it does in all but the worse sixth of them, if they are as from a bell curve."""
        return self.mean - self.spread


@dataclass(frozen=True)
class Gain:
    """Elastic's best plan over the best one of another policy, on as many cells."""

    elastic: Measure
    other: Measure
    ratio: float
    spread: float

    @property
    def pays(self) -> bool | None:
        """None: not clear within the spread."""
        if self.ratio < PAYS:
            return False
        return True if self.ratio - self.spread > 1.0 else None


@dataclass(frozen=True)
class Advice:
    """What came of a search."""

    goal: Goal
    best: Measure | None
    """None: nothing reaches the target."""
    measures: list[Measure]
    """All finalists within the limit, by cells and then the fastest first."""
    gain: Gain | None
    """At best's cells (the most, where there is none); None where only one side was possible."""
    flat: bool = False
    """The search ended since more cells made nothing faster."""


Watch = Callable[[str], None]


def search(worlds: Sequence[Scene], goal: Goal, seeds: int, watch: Watch) -> Advice:
    """Find a plan. Raises UserError when none keeps the staleness limit."""
    best: Measure | None = None
    measures: list[Measure] = []
    flat = False
    for size in _sizes(worlds, goal):
        watch(f"{size.size():g} cells" if size.cells else f"{size.scale:g} times its cells")
        found = _at_size(worlds, goal, size, seeds)
        measures += found
        best, flat = _choose(found, goal), _flat(measures)
        if best is not None or flat:
            break
    if not measures:
        raise UserError(
            "a plan within the staleness limit",
            f"none of 95th percentile {goal.staleness_limit} or less",
            "raise --staleness-limit",
        )
    last = (best or measures[-1]).candidate.size()
    same = [one for one in measures if one.candidate.size() == last]
    return Advice(goal, best, measures, _gain(same), flat)


def _flat(measures: Sequence[Measure]) -> bool:
    """Whether the newest size is hardly faster than one with at most half its cells."""
    if not measures:
        return False
    now = measures[-1].candidate.size()
    before = [one.mean for one in measures if one.candidate.size() * 2 <= now]
    newest = max(one.mean for one in measures if one.candidate.size() == now)
    return bool(before) and newest < FLAT * max(before)


def _sizes(worlds: Sequence[Scene], goal: Goal) -> Iterator[Candidate]:
    """From few cells to many; without a target only what there is. Raises UserError for none."""

    def size(cells: int | None, scale: float = 1.0) -> Candidate:
        return Candidate("elastic", 1, 0, cells, scale)

    counts = {len(world.plan.cells) for world in worlds}
    own, many = len(worlds[0].plan.cells), len(counts) > 1
    most = goal.most_cells or 4 * max(counts)
    if goal.cells is not None:
        return iter([size(goal.cells)])
    if goal.steps_per_hour is None:
        return iter([size(None if many else own)])
    if not many:
        return (size(count) for count in sorted({*COUNTS, own, most}) if count <= most)
    scaled = [size(None, scale) for scale in SCALES]
    fitting = [one for one in scaled if max(one.cells_in(world) for world in worlds) <= most]
    if not fitting:
        least = max(scaled[0].cells_in(world) for world in worlds)
        found = f"{most}, and parameter sets of {min(counts)} to {max(counts)} cells"
        raise UserError(f"--most-cells of at least {least}", found, "raise it, or give --cells")
    return iter(fitting)


def _at_size(worlds: Sequence[Scene], goal: Goal, size: Candidate, seeds: int) -> list[Measure]:
    """The finalists of every policy, measured, the fastest first."""
    pilots: dict[str, list[tuple[float, Candidate]]] = {}
    for candidate in _candidates(worlds[0], goal, size):
        result = candidate.run(worlds[0], 0, PILOT_STEPS)
        if _p95(result) <= goal.staleness_limit:
            pilots.setdefault(candidate.policy, []).append((_rate(result), candidate))
    measures = []
    for of_policy in pilots.values():
        ordered = [candidate for _, candidate in sorted(of_policy, key=lambda one: -one[0])]
        measures += _finalists(worlds, ordered, goal, seeds)
    return sorted(measures, key=lambda one: -one.mean)


def _finalists(
    worlds: Sequence[Scene], ordered: Sequence[Candidate], goal: Goal, seeds: int
) -> list[Measure]:
    """The first of them that keep the limit in every world and on every seed."""
    kept: list[Measure] = []
    for candidate in ordered:
        measure = _measure(worlds, candidate, seeds)
        if measure.staleness_p95 <= goal.staleness_limit:
            kept.append(measure)
        if len(kept) == FINALISTS:
            break
    return kept


def _candidates(scene: Scene, goal: Goal, size: Candidate) -> Iterator[Candidate]:
    cells = size.cells_in(scene)
    splits = [count / cells for count in range(1, cells)]
    if len(splits) > len(EIGHTHS):
        splits = list(EIGHTHS)
    for burst, budget in product(BURSTS, BUDGETS):
        if burst + budget - 1 > goal.staleness_limit:  # the oldest group's age in steps
            continue
        own = replace(size, burst=burst, staleness=budget)
        for policy in (*MOVING, "colocate"):
            yield replace(own, policy=policy)
        for share in splits:
            yield replace(own, policy="async", training_share=share)


def _measure(worlds: Sequence[Scene], candidate: Candidate, seeds: int) -> Measure:
    results = [
        (candidate.run(world, seed, FULL_STEPS), candidate.cells_in(world))
        for world in worlds
        for seed in range(1, seeds + 1)
    ]
    return Measure(
        candidate,
        tuple(_rate(result) for result, _ in results),
        fmean(idle_share(result.outcome, cells) for result, cells in results),
        fmean(
            result.outcome.training_busy_s / result.outcome.seconds / cells
            for result, cells in results
        ),
        max(_p95(result) for result, _ in results),
    )


def _rate(result: Result) -> float:
    return len(result.outcome.steps) * HOUR_S / result.outcome.seconds


def _p95(result: Result) -> int:
    staleness = result.outcome.staleness
    assert staleness is not None, "a finished simulation has its staleness"
    return staleness.steps.p95


def _choose(found: Sequence[Measure], goal: Goal) -> Measure | None:
    """The fastest that reaches the target for sure; elastic only where it is worth it."""
    wanted = goal.steps_per_hour
    good = [one for one in found if wanted is None or one.low >= wanted]
    if not good:
        return None
    first = good[0]
    if first.candidate.policy not in MOVING:
        return first
    others = [one for one in good if one.candidate.policy not in MOVING]
    return others[0] if others and _ratio(first, others[0])[0] < PAYS else first


def _gain(measures: Sequence[Measure]) -> Gain | None:
    elastic = [one for one in measures if one.candidate.policy in MOVING]
    others = [one for one in measures if one.candidate.policy not in MOVING]
    if not elastic or not others:
        return None
    ratio, spread = _ratio(elastic[0], others[0])
    return Gain(elastic[0], others[0], ratio, spread)


def _ratio(one: Measure, other: Measure) -> tuple[float, float]:
    """Mean and standard deviation over worlds and seeds, each against itself."""
    ratios = [a / b for a, b in zip(one.rates, other.rates, strict=True)]
    return fmean(ratios), stdev(ratios) if len(ratios) > 1 else 0.0
