"""How far a parameter set is from the calibrated row, and whether it has that row's figures again.

Invariant: no other row is looked at. What the published durations pin directly, the nominal duration and
the spread between a group's members, is solved for; the rest is taken as it comes.
"""

import math
from dataclasses import dataclass

from msgspec.structs import replace

from opengyre.app.simulate.baselines import (
    COLOCATE,
    ELASTIC,
    Choice,
    Result,
    best,
    run,
    splits,
)
from opengyre.app.simulate.build import HOUR_S, Scene, build
from opengyre.app.simulate.ensemble import Fitted, slowest_h
from opengyre.app.simulate.population import Particle
from opengyre.app.simulate.presets import CALIBRATED, Preset, Span, Values, load_preset

DURATION_TOLERANCE = 0.05
"""Of mean and slowest execution: what seeds differ by over 48 steps."""
NEAR_ENOUGH = 0.03
"""A relative error of them that is not corrected further."""
SHAPE_ROUNDS = 4
"""Corrections of duration and spread; each divides the error by about ten."""
LEAST_SPREAD = 0.02
"""Between the members of a group: below it they are alike."""
USUAL_SPREAD = 0.2
"""Between members, to begin with."""
SEARCH_SEEDS = 10_000_000
"""Added to a candidate's number while it is searched: the runs that confirm it draw other executions."""


@dataclass(frozen=True)
class Solved:
    """A set with the published durations, and the run under elastic that shows them."""

    values: Values
    elastic: Result
    off: float
    """Relative error of the worse of mean and slowest execution."""

    @property
    def good(self) -> bool:
        """Whether it has them."""
        return self.off <= DURATION_TOLERANCE


def with_durations(values: Values, preset: Preset, seed: int) -> Solved:
    """Solve for the nominal duration and the members' spread, as far as that goes."""
    known = preset.known_numbers
    mean, slowest = known["execution_h"], known["slowest_h"]
    values = {"nominal_h": mean, "member_spread": USUAL_SPREAD} | values
    corrections = 0
    while True:
        result = run(build(values), ELASTIC, seed)
        found, worst = result.outcome.execution_s / HOUR_S, slowest_h(result.outcome)
        off = max(abs(found / mean - 1.0), abs(worst / slowest - 1.0))
        if off <= NEAR_ENOUGH or corrections == SHAPE_ROUNDS:
            return Solved(values, result, off)
        wider = (slowest / mean - 1.0) / (worst / found - 1.0)
        values["nominal_h"] *= mean / found
        values["member_spread"] = max(LEAST_SPREAD, values["member_spread"] * wider)
        corrections += 1


def near(
    values: Values, preset: Preset, number: int, tolerance: float
) -> tuple[Values, float] | None:
    """The set with its durations, and its distance; None if that is beyond the tolerance.

    The distance is that of the worse speed-up from the middle of its published span, in halves of the
    span's width. Colocate is run first, then one split of async after the other, as long as it matters.
    """
    seed = number + SEARCH_SEEDS
    solved = with_durations(values, preset, seed)
    if not solved.good:
        return None
    scene, own = build(solved.values), solved.elastic.hours
    distance = abs(_off(preset.published["colocate"], run(scene, COLOCATE, seed).hours / own))
    if distance > tolerance:
        return None
    off, fastest = 0.0, math.inf
    for choice in _likely_first(scene, values):
        fastest = min(fastest, run(scene, choice, seed).hours)
        off = _off(preset.published["async"], fastest / own)
        if off < -tolerance:
            return None
    distance = max(distance, abs(off))
    return (solved.values, distance) if distance <= tolerance else None


def confirmed(particle: Particle, preset: Preset) -> Fitted | None:
    """The set with its durations, if it has the published figures on executions of its own too."""
    number, spans = particle.candidate, preset.published
    solved = with_durations(particle.parameters, preset, number)
    if not solved.good:
        return None
    colocate = run(build(solved.values), COLOCATE, number).hours / solved.elastic.hours
    if not _inside(spans["colocate"], colocate):
        return None
    fitted = measured(solved.values, number)
    good = all(_inside(spans[name], up) for name, up in fitted.speedups.items())
    return replace(fitted, ancestor=particle.ancestor) if good else None


def measured(values: Values, number: int) -> Fitted:
    """What a set gives, whether it fits or not, on the seed of its number."""
    scene = build(values)
    elastic = run(scene, ELASTIC, number)
    speedups = {
        "async": best(scene, splits(scene), number).hours / elastic.hours,
        "colocate": run(scene, COLOCATE, number).hours / elastic.hours,
    }
    return Fitted(
        candidate=number,
        parameters=dict(values),
        execution_h=elastic.outcome.execution_s / HOUR_S,
        slowest_h=slowest_h(elastic.outcome),
        speedups=speedups,
    )


def in_calls(fitted: Fitted, calls: float) -> Fitted:
    """A set with executions of so many calls, hence of another grain, and the same durations."""
    preset = load_preset(CALIBRATED)
    values = fitted.parameters | {"calls": calls}
    solved = with_durations(values, preset, fitted.candidate)
    return replace(fitted, parameters=solved.values)


def _likely_first(scene: Scene, values: Values) -> list[Choice]:
    """Streaming async at every split, the one nearest to training's share of the work first."""
    wanted = values["training_share"] * values["cells"]
    choices = splits(scene, barriers=False)
    return sorted(choices, key=lambda choice: abs(choice.training_cells - wanted))


def _off(span: Span, speedup: float) -> float:
    """From the middle of a span, in halves of its width."""
    return (speedup - (span.low + span.high) / 2) / ((span.high - span.low) / 2)


def _inside(span: Span, speedup: float) -> bool:
    return span.low <= speedup <= span.high
