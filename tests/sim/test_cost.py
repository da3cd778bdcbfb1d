"""What is done for an event does not grow with the world: counted in instructions, so that it is the
same on every machine."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import msgspec
import pytest

from opengyre.app.bench.sim_work import Instructions
from opengyre.app.bench.sim_world import bench_setting
from opengyre.config.run import PolicyName
from opengyre.scheduler.base import (
    Begin,
    CloseStep,
    Decision,
    DispatchGroups,
    Event,
    ExecutionEnded,
    ExecutionStarted,
    Finish,
    GroupDispatched,
    GroupReady,
    Published,
    PublishWeights,
    SchedulePlan,
    StepDone,
    SwitchCell,
    Switched,
)
from opengyre.scheduler.factory import make_policy
from opengyre.scheduler.scheduler import Scheduler
from opengyre.sim.outcome import Outcome
from opengyre.sim.world import Setting, simulate

POLICIES: tuple[PolicyName, ...] = ("elastic", "forecast", "colocate", "async")
SMALL, LARGE = 8, 48
"""Cells. An event takes some 500 instructions; one that looks at each of 40 more cells takes twice that."""
MORE = 1.05
"""Times the instructions that an event of the larger world may take: what is done once a run or a burst
is spread over more events there, and the mix of events is a little different."""


def a_world(cells: int, policy: PolicyName, mean_life_s: float, *, streaming: bool) -> Setting:
    setting = bench_setting(cells, steps=2, seed=0)
    short = msgspec.structs.replace(setting.workload, calls=2.0)
    plan = replace(setting.plan, training_cells=cells // 4)
    machine = msgspec.structs.replace(setting.machine, mean_life_s=mean_life_s)
    return replace(
        setting, plan=plan, policy=policy, workload=short, machine=machine, streaming=streaming
    )


def instructions_an_event(setting: Setting) -> float:
    instructions, outcomes = Instructions(), list[Outcome]()
    instructions.of(lambda: outcomes.append(simulate(setting)))
    return instructions.count / outcomes[0].events


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("streaming", "mean_life_s"), [(True, math.inf), (False, math.inf), (True, 2000.0)]
)
def test_an_event_takes_as_many_instructions_in_a_large_world(
    policy: PolicyName, mean_life_s: float, *, streaming: bool
) -> None:
    small, large = (
        instructions_an_event(a_world(cells, policy, mean_life_s, streaming=streaming))
        for cells in (SMALL, LARGE)
    )
    assert large <= MORE * small


def test_the_count_is_the_same_every_time() -> None:
    setting = a_world(SMALL, "elastic", math.inf, streaming=True)
    assert instructions_an_event(setting) == instructions_an_event(setting)


class Prompt:
    """A world without time: whatever the scheduler decides is done next, in order."""

    def __init__(self, plan: SchedulePlan, policy: PolicyName) -> None:
        self._plan = plan
        self._scheduler = Scheduler(plan, make_policy(policy, plan))
        self._to_tell: deque[Event] = deque([Begin()])
        self._groups = self._version = 0
        self.events = 0
        self.finished = False

    def play(self, instructions: Instructions) -> None:
        """Until Finish, counting what the scheduler does and nothing else."""
        while self._to_tell:
            event, decisions = self._to_tell.popleft(), list[Decision]()
            instructions.of(partial(self._decide, event, decisions))
            self.events += 1
            for decision in decisions:
                self._to_tell.extend(self._answer(decision))

    def _decide(self, event: Event, decisions: list[Decision]) -> None:
        decisions += self._scheduler.decide(event, now=float(self.events))

    def _answer(self, decision: Decision) -> Iterator[Event]:
        match decision:
            case DispatchGroups(count):
                for _ in range(count):
                    yield from self._whole_group()
            case SwitchCell(cell, role):
                yield Switched(cell, role)
            case CloseStep(step, _):
                yield StepDone(step, computed_s=1.0)
            case PublishWeights(version):
                self._version = version
                yield Published(version)
            case Finish():
                self.finished = True
            case _:
                pass

    def _whole_group(self) -> Iterator[Event]:
        name = f"g{self._groups}"
        self._groups += 1
        yield GroupDispatched(name, self._version)
        for member in range(self._plan.group_size):
            yield ExecutionStarted(f"{name}-{member}", name)
            yield ExecutionEnded(f"{name}-{member}", name)
        yield GroupReady(name)


def a_plan(cells: int, groups: int) -> SchedulePlan:
    return SchedulePlan(
        cells=(8,) * cells,
        group_size=2,
        groups_per_step=groups,
        steps_per_burst=2,
        staleness_steps=2,
        total_steps=4,
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("few", "many"),
    [
        pytest.param((8, 32), (8, 128), id="groups"),
        pytest.param((32, 8), (128, 8), id="cells"),
        pytest.param((16, 16), (64, 64), id="both"),
    ],
)
def test_a_decision_takes_as_many_instructions_among_many_cells_or_groups(
    policy: PolicyName, few: tuple[int, int], many: tuple[int, int]
) -> None:
    def an_event(cells: int, groups: int) -> float:
        instructions, world = Instructions(), Prompt(a_plan(cells, groups), policy)
        world.play(instructions)
        assert world.finished
        return instructions.count / world.events

    assert an_event(*many) <= MORE * an_event(*few)
