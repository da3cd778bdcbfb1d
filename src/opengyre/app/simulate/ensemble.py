"""Parameter sets that fit the calibrated row: few numbers cannot pin many parameters, so all that fit count.

Invariant: a set is accepted by the calibrated row alone; candidate i is the same from the same seed,
whatever came of the others. What the two duration figures pin directly, the nominal duration and the
spread between a group's members, is solved for; everything else is drawn blindly, and walks a few
random steps towards the row.
"""

import random
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import msgspec
from msgspec import Struct

from opengyre.app.simulate.baselines import Choice, best, run, splits
from opengyre.app.simulate.build import HOUR_S, build
from opengyre.app.simulate.presets import CALIBRATED, Preset, Span, Values, load_preset
from opengyre.core.errors import UserError
from opengyre.sim.outcome import Outcome

ELASTIC = Choice("elastic")
COLOCATE = Choice("colocate")
DURATION_TOLERANCE = 0.05
"""Of mean and slowest execution: what seeds differ by over 48 steps."""
SHAPE_ROUNDS = 3
"""Corrections of duration and spread; each divides the error by about ten."""
SHAPE_STEPS = 16
"""Optimiser steps that a correction is measured over: some thousand executions."""
LEAST_SPREAD = 0.02
"""Between the members of a group: below it they are alike."""
USUAL_SPREAD = 0.2
"""Between members, to begin with."""
HOPELESS = 0.2
"""A miss from which a walk seldom comes back."""
SHORT_BIAS = 0.04
"""By which a short run overstates both speed-ups: its first burst has nothing to overlap with."""
CLOSE = 0.02
"""A miss that is no more than the noise of a short run: worth a whole one."""
WALK = 10
"""Steps of a walk; those that fit need two to ten."""
NUDGE = 1.2
"""Deviation of a step of a walk over the miss, both as shares: of a parameter's range, of 1."""
NEIGHBOURHOOD = 0.15
"""Of a parameter's range: how far neighbours lie apart; about one in four then fits."""
OTHER_CHOICE = 0.2
"""How often a neighbour takes another number of cells or another burst length."""
ACCEPTED_FILE = "accepted.json"


class Fitted(Struct, frozen=True, kw_only=True):
    """An accepted set. Made by calibrate; read by everything that predicts."""

    candidate: int
    """Its number among the candidates of its seed."""
    parameters: Values
    execution_h: float
    slowest_h: float
    speedups: dict[str, float]
    """Over each baseline, with the seed it was accepted on."""


class Ensemble(Struct, frozen=True, kw_only=True):
    """The file of accepted sets."""

    seed: int
    candidates: int
    """That were tried."""
    accepted: tuple[Fitted, ...]


def bundled_ensemble() -> Ensemble:
    """The sets that come with the package."""
    path = files("opengyre.app.simulate").joinpath(ACCEPTED_FILE)
    return msgspec.json.decode(path.read_bytes(), type=Ensemble)


def load_ensemble(path: Path | None) -> Ensemble:
    """The bundled sets, or one's own. Raises UserError."""
    if path is None:
        return bundled_ensemble()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ensemble)
    except (OSError, msgspec.DecodeError) as error:
        wanted = "a file that `opengyre simulate calibrate` wrote"
        raise UserError(wanted, f"{path}: {error}", "name another") from error


def slowest_h(outcome: Outcome) -> float:
    """Mean over groups of the slowest execution."""
    slowest = [max(group) for group in outcome.executions_s]
    return sum(slowest) / len(slowest) / HOUR_S


def calibrate(
    seed: int,
    candidates: range,
    watch: Callable[[int, Fitted | None], None],
    known: tuple[Fitted, ...] = (),
) -> Ensemble:
    """Try candidates; keep those that fit, and the known ones. watch is told of each.

    Until one is known a candidate is drawn blindly; then it is a neighbour of one that fits.
    """
    accepted = list(known)
    for number in candidates:
        near = tuple(accepted)
        fitted = try_neighbour(seed, number, near) if near else try_candidate(seed, number)
        if fitted is not None:
            accepted.append(fitted)
        watch(number, fitted)
    return Ensemble(seed=seed, candidates=len(candidates), accepted=tuple(accepted))


def try_neighbour(seed: int, number: int, accepted: tuple[Fitted, ...]) -> Fitted | None:
    """One of the accepted sets, moved at random within the ranges; accepted itself only if it fits."""
    preset = load_preset(CALIBRATED)
    draw = random.Random(f"{seed}/{number}/near")
    start = draw.choice(accepted).parameters
    values = _nudged(start, preset, draw, NEIGHBOURHOOD)
    for name, among in preset.assumed.choices.items():
        if draw.random() < OTHER_CHOICE:
            values[name] = draw.choice(among)
    return _fit(_with_durations(values, preset, number), preset, number)


def try_candidate(seed: int, number: int) -> Fitted | None:
    """Draw a set, give it the published durations, let it walk towards the published speed-ups, and see
    whether a whole run has them."""
    preset = load_preset(CALIBRATED)
    draw = random.Random(f"{seed}/{number}")
    values = preset.known_numbers | preset.assumed.draw(draw)
    values |= {"nominal_h": values["execution_h"], "member_spread": USUAL_SPREAD}
    values = _with_durations(values, preset, number)
    missed = _missed(values, preset, number)
    if missed > HOPELESS:
        return None
    for _ in range(WALK):
        if missed <= CLOSE:
            break
        other = _nudged(values, preset, draw, NUDGE * missed)
        missed_by_other = _missed(other, preset, number)
        if missed_by_other < missed:
            values, missed = other, missed_by_other
    return None if missed > CLOSE else _fit(_with_durations(values, preset, number), preset, number)


def _nudged(values: Values, preset: Preset, draw: random.Random, by: float) -> Values:
    """About half of the parameters moved a little, within their ranges."""
    nudged = dict(values)
    for name, (low, high) in preset.assumed.ranges.items():
        if draw.random() < 0.5:
            moved = nudged[name] + draw.gauss(0.0, by) * (high - low)
            nudged[name] = min(high, max(low, moved))
    return nudged


def _with_durations(values: Values, preset: Preset, seed: int) -> Values:
    known = preset.known_numbers
    mean, slowest = known["execution_h"], known["slowest_h"]
    values = dict(values)
    for _ in range(SHAPE_ROUNDS):
        outcome = run(build(values), ELASTIC, seed, SHAPE_STEPS).outcome
        found = outcome.execution_s / HOUR_S
        excess = slowest_h(outcome) / found - 1.0
        wider = (slowest / mean - 1.0) / excess
        values["nominal_h"] *= mean / found
        values["member_spread"] = max(LEAST_SPREAD, values["member_spread"] * wider)
    return values


def _missed(values: Values, preset: Preset, seed: int) -> float:
    """By how much a short run's speed-ups lie outside the inner two thirds of the published spans."""
    scene, spans = build(values), preset.published
    elastic = run(scene, ELASTIC, seed, SHAPE_STEPS).hours
    missed = _outside(spans["colocate"], run(scene, COLOCATE, seed, SHAPE_STEPS).hours / elastic)
    if missed > HOPELESS:
        return missed
    hours = [run(scene, one, seed, SHAPE_STEPS).hours for one in splits(scene, barriers=False)]
    return missed + _outside(spans["async"], min(hours) / elastic)


def _outside(span: Span, speedup: float) -> float:
    middle, reach = (span.low + span.high) / 2 + SHORT_BIAS, (span.high - span.low) / 3
    return max(0.0, abs(speedup - middle) - reach)


def _fit(values: Values, preset: Preset, number: int) -> Fitted | None:
    quick = run(build(values), COLOCATE, number).hours / run(build(values), ELASTIC, number).hours
    if not preset.published["colocate"].low <= quick <= preset.published["colocate"].high:
        return None
    fitted = measured(values, number)
    known = preset.known_numbers
    durations = (
        (fitted.execution_h, known["execution_h"]),
        (fitted.slowest_h, known["slowest_h"]),
    )
    if any(abs(found / wanted - 1.0) > DURATION_TOLERANCE for found, wanted in durations):
        return None
    spans = preset.published
    good = all(spans[name].low <= up <= spans[name].high for name, up in fitted.speedups.items())
    return fitted if good else None


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
