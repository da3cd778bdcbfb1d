"""The published table again, simulated: what was fitted, what is predicted, and by how much it misses.

Invariant: only the rows of the calibrated preset were fitted, and even those are simulated here on
seeds that no set was accepted on. Nothing is left out because it misses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import fmean, stdev
from typing import TypeVar

from opengyre.app.simulate.baselines import COLOCATE, ELASTIC, best, run, splits
from opengyre.app.simulate.build import HOUR_S, Scene, build
from opengyre.app.simulate.ensemble import Fitted, slowest_h
from opengyre.app.simulate.presets import Span, load_preset, preset_names, workplace
from opengyre.app.simulate.workers import Each

Found = TypeVar("Found")

FRESH = 1_000_003
"""Added to a set's number and the seed: no candidate was accepted on such a seed."""
PILOT_STEPS = 16
"""Of the runs that give a preset's executions their published length."""
PILOTS = 2
"""Each divides the error of that length by about ten."""


@dataclass(frozen=True)
class Row:
    """A published speed-up and the simulated ones."""

    workload: str
    baseline: str
    published: Span
    simulated: tuple[float, ...]
    """One of each set."""
    calibrated: bool
    drawn_anew: bool = False
    """Whether all that is not published of the workload was."""

    @property
    def kind(self) -> str:
        """In a word or two."""
        if self.calibrated:
            return "fitted"
        return "drawn anew" if self.drawn_anew else "predicted"

    @property
    def mean(self) -> float:
        """Over the sets."""
        return fmean(self.simulated)

    @property
    def spread(self) -> float:
        """Standard deviation over the sets."""
        return stdev(self.simulated) if len(self.simulated) > 1 else 0.0

    @property
    def residual(self) -> float:
        """From the nearest published value to the simulated mean; 0 inside the published span."""
        if self.mean < self.published.low:
            return self.mean - self.published.low
        return max(0.0, self.mean - self.published.high)

    @property
    def hit(self) -> bool:
        """Whether the simulated mean lies in the published span."""
        return self.residual == 0.0

    @property
    def reached(self) -> bool:
        """Whether the published span overlaps with what the sets give, from the lowest to the highest."""
        return min(self.simulated) <= self.published.high and self.published.low <= max(
            self.simulated
        )

    def as_json(self) -> dict[str, object]:
        """As --json writes it."""
        return {
            "workload": self.workload,
            "baseline": self.baseline,
            "published_low": self.published.low,
            "published_high": self.published.high,
            "simulated_mean": self.mean,
            "simulated_spread": self.spread,
            "simulated_lowest": min(self.simulated),
            "simulated_highest": max(self.simulated),
            "calibrated": self.calibrated,
            "drawn_anew": self.drawn_anew,
            "residual": self.residual,
            "sets": len(self.simulated),
        }


@dataclass(frozen=True)
class Hours:
    """One set's run of a preset under each policy, each at its best."""

    elastic: float
    baselines: dict[str, float]
    execution_h: float
    slowest_h: float
    truncated: dict[str, int]

    def speedup(self, baseline: str) -> float:
        """Of elastic."""
        return self.baselines[baseline] / self.elastic


def scene_of(name: str, fitted: Fitted, *, wide: bool = False) -> Scene:
    """A preset as one set sees it; executions have the length that the preset knows."""
    place = workplace(name, fitted.parameters, fitted.candidate, wide=wide)
    values = dict(place.values)
    share = values.get("slow_group_share")
    if share is None:
        return build(values)
    for _ in range(PILOTS):
        outcome = run(build(values), ELASTIC, fitted.candidate, PILOT_STEPS).outcome
        slowest = sorted(max(group) for group in outcome.executions_s)
        reached = slowest[min(len(slowest) - 1, int((1.0 - share) * len(slowest)))] / HOUR_S
        values["nominal_h"] *= values["slow_group_h"] / reached
    return build(values)


def simulate_set(name: str, fitted: Fitted, seed: int, *, wide: bool = False) -> Hours:
    """Elastic and the best of each baseline, on one fresh seed."""
    scene = scene_of(name, fitted, wide=wide)
    fresh = fresh_seed(fitted, seed)
    elastic = run(scene, ELASTIC, fresh)
    others = {"async": best(scene, splits(scene), fresh), "colocate": run(scene, COLOCATE, fresh)}
    results = {"elastic": elastic, **others}
    return Hours(
        elastic=elastic.hours,
        baselines={label: result.hours for label, result in others.items()},
        execution_h=elastic.outcome.execution_s / HOUR_S,
        slowest_h=slowest_h(elastic.outcome),
        truncated={label: one.outcome.tally.truncated for label, one in results.items()},
    )


def table(
    sets: Sequence[Fitted],
    seed: int,
    each: Each,
    watch: Callable[[str, list[Hours]], None],
    *,
    wide: bool = False,
) -> Iterator[Row]:
    """The rows, preset by preset; watch gets the hours of each preset's sets."""
    for name, hours in by_preset(partial(_simulate_set, seed=seed, wide=wide), sets, each):
        watch(name, hours)
        for baseline in load_preset(name).published:
            yield row_of(name, baseline, (one.speedup(baseline) for one in hours), wide=wide)


def by_preset(
    of_set: Callable[[tuple[str, Fitted]], Found], sets: Sequence[Fitted], each: Each
) -> Iterator[tuple[str, list[Found]]]:
    """Of every published preset: what comes of each set."""
    names = [name for name in preset_names() if load_preset(name).published]
    simulated = each(of_set, [(name, fitted) for name in names for fitted in sets])
    for name in names:
        yield name, list(islice(simulated, len(sets)))


def row_of(name: str, baseline: str, speedups: Iterable[float], *, wide: bool) -> Row:
    """A preset's published speed-up beside those."""
    preset = load_preset(name)
    anew = wide and not preset.calibrated
    return Row(name, baseline, preset.published[baseline], tuple(speedups), preset.calibrated, anew)


def fresh_seed(fitted: Fitted, seed: int) -> int:
    """Of executions that no set was accepted on."""
    return FRESH + 1000 * seed + fitted.candidate


def _simulate_set(of: tuple[str, Fitted], *, seed: int, wide: bool) -> Hours:
    return simulate_set(*of, seed, wide=wide)
