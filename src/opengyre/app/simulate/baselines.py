"""Each policy at its best.

Invariant: a comparison is between plans on the same cells, agents and seed, and no baseline is
compared at a split, or with a barrier, where another choice would have made it faster.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from opengyre.app.simulate.build import HOUR_S, Scene
from opengyre.config.run import PolicyName
from opengyre.sim.outcome import Outcome
from opengyre.sim.world import Setting, simulate

PILOT_STEPS = 12
"""Of the short runs that sort out the slow splits."""
NEAR = 1.05
"""A split within this factor of the pilots' best is run in full."""
BURSTS = (1, 2, 4, 8)
BUDGETS = (0, 1, 2, 4, 8)
"""Burst lengths mu and staleness budgets phi that tuning tries."""


Watch = Callable[[str], object]
"""Told how far a simulation is, in words."""


@dataclass(frozen=True)
class Choice:
    """One way to run a scene."""

    policy: PolicyName
    training_cells: int = 1
    streaming: bool = True

    def __str__(self) -> str:
        mode = "" if self.streaming else ", no streaming"
        if self.policy == "async":
            return f"async, {self.training_cells} train{mode}"
        return f"{self.policy}{mode}"


ELASTIC = Choice("elastic")
COLOCATE = Choice("colocate")


@dataclass(frozen=True)
class Result:
    """What came of it."""

    choice: Choice
    outcome: Outcome

    @property
    def hours(self) -> float:
        """Of the whole run."""
        return self.outcome.seconds / HOUR_S


def run(
    scene: Scene, choice: Choice, seed: int, steps: int | None = None, watch: Watch | None = None
) -> Result:
    """One simulation; with another number of steps if given. watch hears of every step."""
    total = steps or scene.plan.total_steps
    plan = replace(scene.plan, training_cells=choice.training_cells, total_steps=total)
    setting = Setting(
        plan=plan,
        policy=choice.policy,
        workload=scene.workload,
        machine=scene.machine,
        seed=seed,
        streaming=choice.streaming,
    )
    if watch is None:
        return Result(choice, simulate(setting))
    return Result(choice, simulate(setting, lambda n: watch(f"{choice}: {n} of {total} steps")))


def splits(scene: Scene, *, barriers: bool = True) -> list[Choice]:
    """Async at every static split, with streaming and, if asked for, without."""
    modes = (True, False) if barriers else (True,)
    cells = range(1, len(scene.plan.cells))
    return [Choice("async", count, mode) for count, mode in product(cells, modes)]


def best(scene: Scene, choices: list[Choice], seed: int, watch: Watch | None = None) -> Result:
    """The fastest of them: short runs sort out what is clearly slower."""
    if len(choices) > 1 and scene.plan.total_steps > PILOT_STEPS:
        pilots = [(run(scene, one, seed, PILOT_STEPS, watch).hours, one) for one in choices]
        limit = NEAR * min(hours for hours, _ in pilots)
        choices = [one for hours, one in pilots if hours <= limit]
    found = (run(scene, one, seed, watch=watch) for one in choices)
    return min(found, key=lambda result: result.hours)
