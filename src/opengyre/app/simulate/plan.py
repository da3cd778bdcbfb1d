"""Which cells, policy, split, mu and phi reach a target.

Invariant: every plan that is recommended was simulated on every world and seed of the search, kept the
staleness limit on all of them, and is compared with the others on the same ones. Short runs, on other
seeds, sort the candidates; only finalists are run in full. Instead of the plan that ran another one is
recommended only where it is faster by more than chance.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from opengyre.app.simulate.baselines import Result
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.contest import (
    MOVING,
    POLICIES,
    SLACK,
    Candidate,
    Measure,
    Trial,
    candidates,
    measure,
    sieve,
    staleness_of,
)
from opengyre.core.errors import UserError

COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Cells that are tried; finer is less than what seeds differ by."""
SCALES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Times the cells of a preset, whose sets differ in their number."""
PILOTS = 3
"""Short runs that sort the candidates, each in another world where there are several, and with other
executions: the first sorts them roughly, the others those that are left."""
PILOT_STEPS = 12
"""Of these, rounded up to whole bursts, at least two."""
FULL_STEPS = 24
"""Of the finalists' runs, likewise."""
FINALISTS = 2
"""Of each policy at each number of cells: the pilots err by less than these differ."""
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
    own: Candidate | None = None
    """The plan that ran: it stays, unless another stands out."""
    as_fresh: bool = False
    """No plan with older data, on average, than the one that ran."""


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
    own: Measure | None = None
    """The plan that ran, where it is among the measures and best is on as many cells."""


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
    own = next((one for one in same if one.candidate == goal.own), None)
    return Advice(goal, best, measures, _gain(same), flat, own if best is not None else None)


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
    """The plan that ran, and the finalists of every policy, measured, the fastest first."""
    every = list(candidates(size, size.cells_in(worlds[0]), goal.staleness_limit))
    pilots = [Trial(worlds[n % len(worlds)], -n, PILOT_STEPS) for n in range(PILOTS)]
    trials = [Trial(world, seed, FULL_STEPS) for world in worlds for seed in range(1, seeds + 1)]
    ran = goal.own if goal.own is not None and goal.own.size() == size.size() else None
    own = measure(ran, trials) if ran is not None else None
    measures = [own] if own is not None and own.staleness_p95 <= goal.staleness_limit else []
    for policy in POLICIES:
        of_policy = [one for one in every if one.policy == policy and one != ran]
        ordered = sieve(of_policy, pilots, _within(goal, ran))
        measures += _finalists(ordered, trials, goal, own)
    return sorted(measures, key=lambda one: -one.mean)


def _within(goal: Goal, ran: Candidate | None) -> Callable[[Trial, Result], bool]:
    """Whether a pilot's groups are young enough."""
    limits: dict[int, float] = {}

    def within(trial: Trial, result: Result) -> bool:
        mean, p95 = staleness_of(result)
        if p95 > goal.staleness_limit or ran is None or not goal.as_fresh:
            return p95 <= goal.staleness_limit
        if trial.seed not in limits:
            limits[trial.seed] = staleness_of(trial.of(ran))[0]
        return mean <= limits[trial.seed] * (1 + SLACK)

    return within


def _finalists(
    ordered: Sequence[Candidate], trials: Sequence[Trial], goal: Goal, own: Measure | None
) -> list[Measure]:
    """The first of them that keep the limits over all trials."""
    kept: list[Measure] = []
    for candidate in ordered:
        found = measure(candidate, trials)
        fresh = own is None or not goal.as_fresh or found.no_older_than(own)
        if fresh and found.staleness_p95 <= goal.staleness_limit:
            kept.append(found)
        if len(kept) == FINALISTS:
            break
    return kept


def _choose(found: Sequence[Measure], goal: Goal) -> Measure | None:
    """The fastest that reaches the target for sure; elastic only where it is worth it; elastic instead of
    forecast, and the plan that ran instead of any other, unless the faster one stands out."""
    wanted = goal.steps_per_hour
    good = [one for one in found if wanted is None or one.low >= wanted]
    if not good:
        return None
    own = next((one for one in good if one.candidate == goal.own), None)
    elastic = next((one for one in good if one.candidate.policy == "elastic"), None)
    others = [one for one in good if one.candidate.policy not in MOVING]
    first = good[0]
    if first.candidate.policy in MOVING and others and first.over(others[0])[0] < PAYS:
        first = others[0]
    for simpler in (elastic if first.candidate.policy == "forecast" else None, own):
        if simpler is not None and first.surely_over(simpler) <= 1.0:
            first = simpler
    return first


def _gain(measures: Sequence[Measure]) -> Gain | None:
    elastic = [one for one in measures if one.candidate.policy in MOVING]
    others = [one for one in measures if one.candidate.policy not in MOVING]
    if not elastic or not others:
        return None
    return Gain(elastic[0], others[0], *elastic[0].over(others[0]))
