"""What a search for a plan says: its table, its sentences and its JSON."""

from collections.abc import Sequence

from rich.table import Table

from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.contest import Candidate, Measure
from opengyre.app.simulate.plan import Advice, Gain

LITTLE_TRAINING = 0.1
"""Of cell time: no schedule wins more than that by overlapping it."""
LITTLE_IDLE = 0.1
"""Likewise."""


def plan_words(candidate: Candidate, worlds: Sequence[Scene]) -> str:
    """Such as "elastic, 4 cells, mu 4, phi 0"."""
    counts = sorted({candidate.cells_in(world) for world in worlds})
    cells = f"{counts[0]} cells" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} cells"
    if counts == [1]:
        cells = "1 cell"
    split = ""
    if candidate.policy == "async":
        trains = sorted({candidate.training_in(world) for world in worlds})
        split = f" ({trains[0]}{f' to {trains[-1]}' if len(trains) > 1 else ''} in training)"
    return f"{candidate.policy}, {cells}{split}, mu {candidate.burst}, phi {candidate.staleness}"


def rate_words(rate: float) -> str:
    """Three digits, or all of those before the point."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def measures_table(advice: Advice, worlds: Sequence[Scene]) -> Table:
    """A line a finalist; the recommended one is marked."""
    table = Table(title="Plans within the staleness limit", box=None, padding=(0, 2, 0, 0))
    table.add_column("plan", overflow="fold")
    for heading in ("steps/h", "±", "train", "idle", "stale p95"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in advice.measures:
        mark = "→ " if one is advice.best else "  "
        table.add_row(
            mark + plan_words(one.candidate, worlds),
            rate_words(one.mean),
            rate_words(one.spread),
            f"{one.training:.0%}",
            f"{one.idle:.0%}",
            str(one.staleness_p95),
        )
    return table


def advice_words(advice: Advice, worlds: Sequence[Scene], steps: int | None) -> list[str]:
    """What is recommended, and whether elasticity pays."""
    words = [_best_words(advice, worlds, steps)]
    if advice.best is not None and advice.own is not None:
        words.append(own_words(advice.best, advice.own, worlds))
    if advice.gain is None:
        words.append("no fixed split is possible on these cells, and nothing to compare with")
    else:
        words.append(gain_words(advice.gain, worlds))
    return words


def _best_words(advice: Advice, worlds: Sequence[Scene], steps: int | None) -> str:
    best, wanted = advice.best, advice.goal.steps_per_hour
    if best is None:
        assert wanted is not None, "without a target the fastest is the best"
        fastest = max(advice.measures, key=lambda one: one.mean)
        more = (
            "a higher --staleness-limit"
            if advice.flat
            else "more cells, or a higher --staleness-limit"
        )
        flat = "; twice the cells were hardly faster, so no more were tried" if advice.flat else ""
        return (
            f"nothing tried reaches {rate_words(wanted)} steps/h with what is left after the "
            f"spread; the fastest is {plan_words(fastest.candidate, worlds)}: {rate_words(fastest.mean)} ± "
            f"{rate_words(fastest.spread)} steps/h{flat}. Allow {more}"
        )
    line = f"recommended: {plan_words(best.candidate, worlds)}: "
    line += f"{rate_words(best.mean)} ± {rate_words(best.spread)} steps/h"
    if steps is not None:
        slow = f"{steps / best.low:.3g}" if best.low > 0 else "any number of"
        line += f"; {steps} steps in {steps / best.mean:.3g} h (with the spread: {slow} h)"
    if wanted is not None:
        line += f"; wanted {rate_words(wanted)} steps/h, and no fewer cells of those tried reach it"
    return line


def own_words(best: Measure, own: Measure, worlds: Sequence[Scene]) -> str:
    """Whether the plan that ran should be changed."""
    if best is own:
        return "that is the plan that ran: none that was tried is faster by more than chance"
    ratio, spread = best.over(own)
    ran = plan_words(own.candidate, worlds)
    return f"that is {ratio:.2f} ± {spread:.2f} times as fast as the plan that ran ({ran})"


def gain_words(gain: Gain, worlds: Sequence[Scene]) -> str:
    """Whether elasticity pays, plainly."""
    other = plan_words(gain.other.candidate, worlds)
    ratio = f"{gain.ratio:.2f} ± {gain.spread:.2f} times as fast as {other}"
    if gain.pays:
        return f"elasticity pays: its best plan is {ratio}"
    if gain.pays is None:
        return f"it is not clear that elasticity pays: its best plan is {ratio}"
    return f"elasticity does NOT pay here: its best plan is {ratio}; {_why(gain, worlds)}"


def _why(gain: Gain, worlds: Sequence[Scene]) -> str:
    if all(gain.elastic.candidate.cells_in(world) == 1 for world in worlds):
        return "a single cell cannot serve while it trains, under any policy"
    training, idle = gain.other.training, gain.other.idle
    if training < LITTLE_TRAINING:
        return f"training takes {training:.1%} of the cells' time: there is little to overlap"
    if idle < LITTLE_IDLE:
        return f"the other plan leaves {idle:.0%} of the cells' time idle: there is little to win"
    return "what its cells win in mid-burst, switches and fuller rollout cells take away"


def advice_json(advice: Advice, worlds: Sequence[Scene]) -> dict[str, object]:
    """All figures."""
    gain = advice.gain
    return {
        "staleness_limit": advice.goal.staleness_limit,
        "steps_per_hour_wanted": advice.goal.steps_per_hour,
        "recommended": None if advice.best is None else measure_json(advice.best, worlds),
        "ran": None if advice.own is None else measure_json(advice.own, worlds),
        "plans": [measure_json(one, worlds) for one in advice.measures],
        "elastic_over_best_other": None
        if gain is None
        else {"ratio": gain.ratio, "spread": gain.spread, "pays": gain.pays},
    }


def measure_json(one: Measure, worlds: Sequence[Scene]) -> dict[str, object]:
    """One plan's figures."""
    candidate = one.candidate
    return {
        "policy": candidate.policy,
        "cells": [candidate.cells_in(world) for world in worlds],
        "training_cells": [candidate.training_in(world) for world in worlds]
        if candidate.policy == "async"
        else None,
        "steps_per_burst": candidate.burst,
        "staleness_steps": candidate.staleness,
        "steps_per_hour": one.mean,
        "spread": one.spread,
        "training_share": one.training,
        "idle_share": one.idle,
        "staleness_mean": one.staleness,
        "staleness_p95": one.staleness_p95,
    }
