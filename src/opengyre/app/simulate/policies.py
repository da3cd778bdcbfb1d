"""Does anything beat elastic? Candidates and tunings against it, over an ensemble of settings.

Invariant: each is compared with plain elastic on the same executions (same seed); what is chosen
by trying (a plan) is chosen on other executions than it is judged on, and only at equal staleness.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import fmean

import msgspec
from rich.console import Console
from rich.table import Table

from opengyre.app.simulate.build import Scene, build
from opengyre.app.simulate.candidates import (
    Even,
    IdleReturn,
    Patient,
    ReadyFirst,
    Settled,
    StayOn,
)
from opengyre.app.simulate.contest import POLICIES, Candidate, candidate_of
from opengyre.app.simulate.ensemble import Fitted
from opengyre.app.simulate.tuning import tuned
from opengyre.config.run import PolicyName
from opengyre.scheduler.base import Policy, SchedulePlan
from opengyre.scheduler.forecast import EarlyReturn, Forecast
from opengyre.sim.outcome import Outcome
from opengyre.sim.workload import Machine, Workload
from opengyre.sim.world import Setting, simulate

SETTINGS = 16
"""Enough that a mean of 3% stands out of the spread between them."""
SEEDS = 2
"""Of each setting."""
FITTED = 8
"""Accepted parameter sets that are looked at beside the drawn settings."""
WORTH = 0.03
"""Mean gain from which a policy is worth its complexity."""
ROLLOUT_HEAVY = 1 / 3
"""Training share below which a setting counts as such in the table."""
FRESH, TRIAL = "fresh", "trial"
"""Which executions: those that judge, and those that a tuning may look at."""


@dataclass(frozen=True)
class Case:
    """One setting: drawn, or that of an accepted parameter set."""

    number: int
    training_share: float
    """Of training in the work of a cell, roughly."""
    setting: Setting

    @property
    def scene(self) -> Scene:
        """Without policy and seed."""
        return Scene(self.setting.plan, self.setting.workload, self.setting.machine)

    def seeded(self, salt: str, turn: int) -> Setting:
        """With executions of its own."""
        return replace(
            self.setting, seed=random.Random(f"{salt}/{self.number}/{turn}").getrandbits(31)
        )


def draw_case(number: int, seed: int) -> Case:
    """Rates follow from ratios: how full, how slow under load, how much training, how dear a switch."""
    rng = random.Random(f"policies/{seed}/{number}")
    cells, group, groups = rng.choice((3, 4, 4, 6)), 8, 4
    mu, phi = rng.choice((1, 2, 2, 4)), rng.choice((0, 0, 1, 2))
    capacity = max(2, round(rng.uniform(0.6, 1.2) * (phi + mu) * groups * group / cells))
    slowdown, share = rng.uniform(1.5, 6.0), rng.uniform(0.1, 0.6)
    calls, answer, observation, prompt, alone = 12.0, 300.0, 700.0, 2000.0, 60.0
    tool = rng.uniform(0.2, 2.0) * answer / alone
    took = calls * (answer / alone * slowdown + tool)
    tokens = prompt + calls * (answer + observation)
    full = (capacity - 1) * alone / (slowdown - 1)
    return Case(
        number,
        share,
        Setting(
            plan=SchedulePlan(
                cells=(capacity,) * cells,
                group_size=group,
                groups_per_step=groups,
                steps_per_burst=mu,
                staleness_steps=phi,
                total_steps=12,
            ),
            policy="elastic",
            workload=Workload(
                calls=calls,
                answer_tokens=answer,
                observation_tokens=observation,
                first_prompt_tokens=prompt,
                tool_s=tool,
                task_spread=rng.uniform(0.2, 0.5),
                member_spread=rng.uniform(0.2, 0.6),
                tool_spread=1.0,
                evaluation_s=0.01 * took,
            ),
            machine=Machine(
                decode_alone_tokens_s=alone,
                decode_full_tokens_s=full,
                prefill_tokens_s=30 * full,
                train_tokens_s=tokens * capacity / took * (1 - share) / share,
                micro_step_tokens=tokens,
                step_s=0.003 * took,
                publish_s=rng.uniform(0.001, 0.01) * took,
                to_training_s=rng.uniform(0.001, 0.02) * took,
                to_rollout_s=rng.uniform(0.001, 0.01) * took,
                kv_move_tokens_s=tokens / (0.002 * took),
            ),
        ),
    )


def fitted_case(fitted: Fitted) -> Case:
    """The published workload as an accepted parameter set has it."""
    scene = build(fitted.parameters)
    setting = Setting(
        plan=scene.plan, policy="elastic", workload=scene.workload, machine=scene.machine
    )
    return Case(fitted.candidate, fitted.parameters["training_share"], setting)


Change = Callable[[Case, Setting], Setting]
"""What a contender does to a setting."""


def _by(make: Callable[[], Policy]) -> Change:
    return lambda _case, setting: replace(setting, policy=make())


def _micro(times: float) -> Change:
    def change(_case: Case, setting: Setting) -> Setting:
        machine = setting.machine
        size = machine.micro_step_tokens * times
        return replace(setting, machine=msgspec.structs.replace(machine, micro_step_tokens=size))

    return change


def _tuned(*policies: PolicyName) -> Change:
    def change(case: Case, setting: Setting) -> Setting:
        plan = _tuning(case, policies)
        other = replace(
            setting.plan,
            steps_per_burst=plan.burst,
            staleness_steps=plan.staleness,
            training_cells=plan.training_in(case.scene),
        )
        return replace(setting, policy=plan.policy, plan=other)

    return change


@cache
def _tuning(case: Case, policies: tuple[PolicyName, ...]) -> Candidate:
    """Once for all the executions that judge it."""
    own = candidate_of("elastic", case.setting.plan)
    return tuned(case.scene, own, policies, lambda turn: case.seeded(TRIAL, turn).seed)


def _both(*changes: Change) -> Change:
    def change(case: Case, setting: Setting) -> Setting:
        for one in changes:
            setting = one(case, setting)
        return setting

    return change


CONTENDERS: dict[str, Change] = {
    "satellites home before the publication": _by(EarlyReturn),
    "patient: join at 85% of the room": _by(partial(Patient, 0.85)),
    "patient: join at 60% of the room": _by(partial(Patient, 0.6)),
    "patient: join at 40% of the room": _by(partial(Patient, 0.4)),
    "forecast: learned time, even cells": _by(Forecast),
    "forecast, executions staying": _by(Settled),
    "elastic, even cells": _by(Even),
    "forecast without patience": _by(partial(Forecast, math.inf)),
    "a satellite for each ready group": _by(ReadyFirst),
    "satellites stay on for ready groups": _by(StayOn),
    "idle satellites home in mid-burst": _by(IdleReturn),
    "micro-step: a whole group": _micro(8.0),
    "micro-step: a quarter execution": _micro(0.25),
    "forecast, micro-step: a quarter execution": _both(_by(Forecast), _micro(0.25)),
    "burst length and budget tuned": _tuned("elastic"),
    "they, policy and split tuned": _tuned(*POLICIES),
}


@dataclass(frozen=True)
class Gain:
    """Of one contender: how much faster than elastic, by case; 0.03 = 3%."""

    name: str
    by_case: tuple[float, ...]
    shares: tuple[float, ...]
    """Of training in the cases' work."""
    older: float
    """Optimiser steps by which its data were older than elastic's, on average."""

    @property
    def mean(self) -> float:
        """Geometric, over all cases."""
        return _mean(self.by_case)

    @property
    def rollout_heavy(self) -> float:
        """Over the cases where training is less than a third."""
        return _mean(
            [g for g, s in zip(self.by_case, self.shares, strict=True) if s < ROLLOUT_HEAVY]
        )

    def as_json(self) -> dict[str, object]:
        """A row of --json."""
        return {
            "contender": self.name,
            "mean_gain": self.mean,
            "mean_gain_rollout_heavy": self.rollout_heavy,
            "gains": list(self.by_case),
            "older_steps": self.older,
            "reaches_bar": self.mean >= WORTH,
        }


def _mean(gains: list[float] | tuple[float, ...]) -> float:
    return math.exp(fmean(math.log1p(gain) for gain in gains)) - 1 if gains else 0.0


Watch = Callable[[str], None]


def compare(
    cases: Sequence[Case], names: Iterable[str], watch: Watch = lambda _: None
) -> Iterator[Gain]:
    """One contender after the other."""
    settings = [[case.seeded(FRESH, turn) for turn in range(SEEDS)] for case in cases]
    watch("elastic")
    elastic = [_run(mine) for mine in settings]
    for name in names:
        change = CONTENDERS[name]
        gains, ages = [], []
        for number, (case, mine) in enumerate(zip(cases, settings, strict=True)):
            watch(f"{name}: setting {number + 1} of {len(cases)}")
            seconds, age = _run([change(case, one) for one in mine])
            before, own_age = elastic[number]
            gains.append(before / seconds - 1)
            ages.append(age - own_age)
        shares = tuple(case.training_share for case in cases)
        yield Gain(name, tuple(gains), shares, fmean(ages))


def _run(settings: Sequence[Setting]) -> tuple[float, float]:
    """Seconds in all, and mean staleness in steps."""
    outcomes = [simulate(one) for one in settings]
    return sum(one.seconds for one in outcomes), fmean(_age(one) for one in outcomes)


def _age(outcome: Outcome) -> float:
    assert outcome.staleness is not None, "a finished simulation has its staleness"
    return outcome.staleness.steps.mean


def policies_table(drawn: Sequence[Gain], fitted: Sequence[Gain]) -> Table:
    """A line a contender."""
    table = Table(title="Faster than elastic", box=None)
    table.add_column("contender", overflow="fold")
    for heading in ("mean", "heavy", "worst", "best", "older", "fitted", "its worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    for gain, on_fitted in zip(drawn, fitted, strict=True):
        figures = (gain.mean, gain.rollout_heavy, min(gain.by_case), max(gain.by_case))
        of_fitted = (on_fitted.mean, min(on_fitted.by_case))
        cells = [f"{figure:+.1%}" for figure in figures]
        table.add_row(
            gain.name, *cells, f"{gain.older:+.2f}", *(f"{figure:+.1%}" for figure in of_fitted)
        )
    return table


def run_policies(seed: int, settings: int, accepted: Sequence[Fitted]) -> list[dict[str, object]]:
    """Print the comparison, over drawn settings and over accepted sets; returns its rows."""
    console = Console()
    cases = [draw_case(number, seed) for number in range(settings)]
    rows = [fitted_case(one) for one in accepted]
    drawn, fitted = [], []
    with console.status("simulating") as status:
        both = zip(
            compare(cases, CONTENDERS, status.update),
            compare(rows, CONTENDERS, lambda at: status.update(f"{at} (fitted)")),
            strict=True,
        )
        for gain, on_fitted in both:
            console.print(f"{gain.name}: {gain.mean:+.1%}", highlight=False)
            drawn.append(gain)
            fitted.append(on_fitted)
    console.print(policies_table(drawn, fitted))
    console.print(
        f"{len(cases)} settings, {SEEDS} seeds each; the bar is {WORTH:.0%} on average. heavy: mean of "
        "those with mostly rollout. older: mean age of data less elastic's, in optimiser steps. fitted: "
        f"over {len(rows)} parameter sets that were accepted on the published row",
        highlight=False,
        soft_wrap=True,
    )
    return [
        gain.as_json() | {"mean_gain_fitted": on_fitted.mean, "gains_fitted": on_fitted.by_case}
        for gain, on_fitted in zip(drawn, fitted, strict=True)
    ]
