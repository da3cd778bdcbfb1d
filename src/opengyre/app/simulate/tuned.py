"""Every policy at its best burst length and staleness budget, at equal staleness.

Invariant: a plan is compared only if its mean and its p95 staleness, in optimiser steps, are at most
those that elastic has under the set's own plan; so no policy buys time with older data. Elastic is
tuned by the same rule as the baselines.
"""

from dataclasses import dataclass
from itertools import product
from statistics import fmean

from rich.table import Table

from opengyre.app.simulate.baselines import (
    BUDGETS,
    BURSTS,
    COLOCATE,
    ELASTIC,
    Choice,
    Result,
    run,
    splits,
)
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.contest import SLACK, no_older, staleness_of
from opengyre.app.simulate.ensemble import Fitted
from opengyre.app.simulate.paper import fresh_seed, scene_of
from opengyre.app.simulate.presets import load_preset, preset_names
from opengyre.sim.outcome import Outcome

TUNING_STEPS = 24
"""A multiple of every burst length that is tried, long enough for the pipeline to fill."""
FAMILIES = ("elastic", "colocate", "async with streaming", "async without streaming")


@dataclass(frozen=True)
class Tuned:
    """One set's tuning of one preset."""

    own: Outcome
    """Elastic under the set's own plan: its staleness is the limit."""
    best: dict[str, Result]
    """By family."""


def tuned_table(sets: tuple[Fitted, ...], seed: int) -> tuple[Table, list[dict[str, object]]]:
    """A line a workload: hours of each tuned policy over those of tuned elastic, mean over sets."""
    table = Table(title="Speed-up of elastic once every policy is tuned", box=None)
    table.add_column("workload", no_wrap=True)
    for family in FAMILIES[1:]:
        table.add_column(family, justify="right")
    figures: list[dict[str, object]] = []
    for name in preset_names():
        if not load_preset(name).published:
            continue
        found = [tuned_hours(name, one, seed).best for one in sets]
        speedups = {
            family: fmean(one[family].hours / one["elastic"].hours for one in found)
            for family in FAMILIES[1:]
        }
        table.add_row(name, *(f"{value:.3f}" for value in speedups.values()))
        figures.append({"workload": name, "sets": len(sets), "speedups": speedups})
    return table, figures


def tuned_hours(
    name: str,
    fitted: Fitted,
    seed: int,
    steps: int = TUNING_STEPS,
    budgets: tuple[int, ...] = BUDGETS,
) -> Tuned:
    """Sweep burst length and staleness budget for every policy, and every split for async."""
    scene, fresh = scene_of(name, fitted), fresh_seed(fitted, seed)
    own = run(scene, ELASTIC, fresh, steps)
    best: dict[str, Result] = {}
    for mu, phi in product(BURSTS, budgets):
        if (mu - 1) / 2 > staleness_of(own)[0] * (1 + SLACK):
            continue  # a burst alone makes data that old
        other = scene.with_plan(steps_per_burst=mu, staleness_steps=phi)
        for family, choice in _choices(scene):
            result = run(other, choice, fresh, steps)
            if no_older(staleness_of(result), staleness_of(own)):
                best[family] = min(best.get(family, result), result, key=lambda one: one.hours)
    return Tuned(own.outcome, best)


def _choices(scene: Scene) -> list[tuple[str, Choice]]:
    modes = {True: FAMILIES[2], False: FAMILIES[3]}
    asynchronous = [(modes[one.streaming], one) for one in splits(scene)]
    return [(FAMILIES[0], ELASTIC), (FAMILIES[1], COLOCATE), *asynchronous]
