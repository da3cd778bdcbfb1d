"""How far a parameter set is from the calibrated row, and whether a whole run of it lies inside.

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
SHORT_STEPS = 16
"""Of a short run: two of the longest bursts."""
FILLING_STEPS = 8
"""Of its first part, which has nothing before it to overlap with; the rest is as all that follows."""
SHORT_SEEDS = 5_000_000
"""Added to a candidate's number: a whole run that confirms a short one draws other executions."""


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


def with_durations(values: Values, preset: Preset, seed: int, steps: int | None = None) -> Solved:
    """Solve for the nominal duration and the members' spread, as far as that goes."""
    known = preset.known_numbers
    mean, slowest = known["execution_h"], known["slowest_h"]
    values = {"nominal_h": mean, "member_spread": USUAL_SPREAD} | values
    for corrections in range(SHAPE_ROUNDS + 1):
        result = run(build(values), ELASTIC, seed, steps)
        found, worst = result.outcome.execution_s / HOUR_S, slowest_h(result.outcome)
        off = max(abs(found / mean - 1.0), abs(worst / slowest - 1.0))
        if off <= NEAR_ENOUGH or corrections == SHAPE_ROUNDS:
            break
        wider = (slowest / mean - 1.0) / (worst / found - 1.0)
        values["nominal_h"] *= mean / found
        values["member_spread"] = max(LEAST_SPREAD, values["member_spread"] * wider)
    return Solved(values, result, off)


def near(
    values: Values, preset: Preset, number: int, tolerance: float
) -> tuple[Values, float] | None:
    """The set with its durations, and its distance in short runs; None if that is beyond the tolerance.

    The distance is that of the worse speed-up from the middle of its published span, in halves of the
    span's width. Colocate is run first, then one split of async after the other, as long as it matters.
    """
    seed = number + SHORT_SEEDS
    solved = with_durations(values, preset, seed, SHORT_STEPS)
    if not solved.good:
        return None
    scene, own = build(solved.values), _whole_s(solved.elastic, preset)
    colocate = _whole_s(run(scene, COLOCATE, seed, SHORT_STEPS), preset) / own
    distance = abs(_off(preset.published["colocate"], colocate))
    if distance > tolerance:
        return None
    off, fastest = 0.0, math.inf
    for choice in _likely_first(scene, values):
        fastest = min(fastest, _whole_s(run(scene, choice, seed, SHORT_STEPS), preset))
        off = _off(preset.published["async"], fastest / own)
        if off < -tolerance:
            return None
    distance = max(distance, abs(off))
    return (solved.values, distance) if distance <= tolerance else None


def whole(particle: Particle, preset: Preset) -> Fitted | None:
    """The set with its durations, if whole runs of it have the published figures."""
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


def _whole_s(short: Result, preset: Preset) -> float:
    """Seconds of the whole run that a short one begins."""
    ends = short.outcome.steps
    pace = (ends[-1] - ends[FILLING_STEPS - 1]) / (len(ends) - FILLING_STEPS)
    return ends[-1] + pace * (preset.known_numbers["total_steps"] - len(ends))


def _off(span: Span, speedup: float) -> float:
    """From the middle of a span, in halves of its width."""
    return (speedup - (span.low + span.high) / 2) / ((span.high - span.low) / 2)


def _inside(span: Span, speedup: float) -> bool:
    return span.low <= speedup <= span.high
