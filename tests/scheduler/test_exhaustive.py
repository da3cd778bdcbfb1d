"""All interleavings of small worlds, under every policy: each rule holds and each run ends.

The numbers of states are part of the claim: a change that makes the exploration smaller shows here.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest

from opengyre.config.run import PolicyName
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CORE, Decision, SchedulePlan
from opengyre.scheduler.cells import Cell
from opengyre.scheduler.elastic import Elastic
from opengyre.scheduler.forecast import EarlyReturn
from opengyre.scheduler.state import State
from tests.scheduler.explore import Faults, explore
from tests.scheduler.strategies import POLICIES
from tests.scheduler.world import World


@dataclass(frozen=True)
class Scope:
    """One small world and what may go wrong in it."""

    plan: SchedulePlan
    faults: Faults
    states: dict[PolicyName, int]


SCOPES = {
    "three unequal cells": Scope(
        SchedulePlan(
            cells=(2, 1, 1),
            group_size=2,
            groups_per_step=1,
            steps_per_burst=1,
            staleness_steps=1,
            total_steps=3,
        ),
        Faults(),
        {"elastic": 920, "forecast": 956, "colocate": 1411, "async": 198},
    ),
    "a core that the rest cannot stand in for": Scope(
        SchedulePlan(
            cells=(2, 1),
            group_size=2,
            groups_per_step=1,
            steps_per_burst=1,
            staleness_steps=1,
            total_steps=3,
        ),
        Faults(),
        {"elastic": 232, "forecast": 240, "colocate": 524, "async": 155},
    ),
    "bursts of two steps and a mishap": Scope(
        SchedulePlan(
            cells=(2, 1, 1),
            group_size=2,
            groups_per_step=1,
            steps_per_burst=2,
            staleness_steps=1,
            total_steps=3,
        ),
        Faults(mishaps=1),
        {"elastic": 743, "forecast": 794, "colocate": 1284, "async": 692},
    ),
    "three cells, two groups a step, a loss": Scope(
        SchedulePlan(
            cells=(1, 1, 1),
            group_size=1,
            groups_per_step=2,
            steps_per_burst=2,
            staleness_steps=1,
            total_steps=3,
        ),
        Faults(losses=1),
        {"elastic": 3276, "forecast": 3473, "colocate": 3952, "async": 2436},
    ),
    "a loss beside a standalone pool": Scope(
        SchedulePlan(
            cells=(1, 1, 1),
            standalone_capacity=1,
            group_size=2,
            groups_per_step=1,
            steps_per_burst=2,
            staleness_steps=1,
            total_steps=3,
        ),
        Faults(losses=1),
        {"elastic": 2086, "forecast": 2255, "colocate": 2188, "async": 1372},
    ),
    "three cells, two losses and a mishap": Scope(
        SchedulePlan(
            cells=(1, 1, 1),
            group_size=1,
            groups_per_step=1,
            steps_per_burst=1,
            staleness_steps=1,
            total_steps=2,
        ),
        Faults(losses=2, mishaps=1),
        {"elastic": 3402, "forecast": 3492, "colocate": 5391, "async": 1368},
    ),
}


class AnyForecast(EarlyReturn):
    """Forecast with whatever estimate: the world chooses each answer."""

    willing: ClassVar[bool] = True

    def wants(self, _state: State, cell: Cell) -> bool:
        return cell.index == CORE or AnyForecast.willing


def _be(willing: bool) -> None:
    AnyForecast.willing = willing


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_state_keeps_the_rules_and_every_run_ends(scope: Scope, policy: PolicyName) -> None:
    if policy == "forecast":
        world = World(scope.plan, policy, by=AnyForecast())
        graph = explore(world, scope.faults, [partial(_be, True), partial(_be, False)])
    else:
        graph = explore(World(scope.plan, policy), scope.faults)
    assert graph.every_run_ends()
    assert graph.finished
    found = len(graph.numbers)
    assert found == scope.states[policy]


class Greedy(Elastic):
    """Forgets live work."""

    def join_training(self, state: State) -> list[Decision]:
        cell = state.cells.first(CellRole.ROLLOUT)
        if cell is None or not state.streaming:
            return []
        return [state.order_switch(cell, CellRole.TRAINING)]


class Lazy(Elastic):
    """Never sends the core to training."""

    def join_training(self, state: State) -> list[Decision]:
        return []


def test_the_exploration_finds_a_policy_that_forgets_live_work() -> None:
    scope = SCOPES["three unequal cells"]
    with pytest.raises(AssertionError, match="live work is covered"):
        explore(World(scope.plan, "elastic", by=Greedy()), scope.faults)


def test_the_exploration_finds_a_run_that_cannot_finish() -> None:
    scope = SCOPES["three unequal cells"]
    assert not explore(World(scope.plan, "elastic", by=Lazy()), scope.faults).every_run_ends()
