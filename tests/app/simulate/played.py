"""A simulated run as if it had been measured: what is fitted to it can be held against the truth."""

import pytest

from opengyre.app.simulate.measured import (
    Measured,
    MeasuredCall,
    MeasuredExecution,
    MeasuredGroup,
    MeasuredStep,
)
from opengyre.app.simulate.replay import lanes_of
from opengyre.scheduler.base import CloseStep, Decision, GroupDispatched
from opengyre.sim.execution import Execution
from opengyre.sim.outcome import Outcome
from opengyre.sim.rollouts import Rollouts
from opengyre.sim.world import Setting, World


class WatchedRollouts(Rollouts):
    """Notes every call."""

    def _call(self, execution: Execution) -> None:
        notes = self.__dict__.setdefault("notes", {})
        asked = notes.setdefault("asked", {})
        at = (execution.move, execution.cell)
        asked[execution.member] = (self._kernel.now, execution.context, *at)
        super()._call(execution)

    def _answered(self, execution: Execution) -> None:
        notes = self.__dict__["notes"]
        began, prompt, move, cell = notes["asked"][execution.member]
        cells = [one.index for one in (cell, execution.cell) if one is not None]
        moved = execution.move > move
        mine = notes.setdefault("calls", {}).setdefault(execution.member, [])
        known = mine[-1].prompt_tokens + mine[-1].answer_tokens if mine else 0
        mine.append(
            MeasuredCall(
                began,
                self._kernel.now,
                round(prompt),
                round(prompt) - known,
                round(execution.context - prompt),
                moved=moved,
                cells=tuple(cells if moved else cells[-1:]),
            )
        )
        super()._answered(execution)


class WatchedWorld(World):
    """Notes groups, executions and steps."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.groups: dict[str, tuple[float, int, list[Execution]]] = {}
        self.ends: dict[str, float] = {}
        self.closed: list[tuple[str, ...]] = []
        self.versions: list[int] = []

    def _dispatch(self) -> None:
        name = f"g{self._made}"
        self.groups[name] = (self.kernel.now, self._version, [])
        super()._dispatch()

    def _note(self, event: object) -> None:
        super()._note(event)  # type: ignore[arg-type]
        if isinstance(event, GroupDispatched):
            at, version, _ = self.groups[event.group_id]
            members = list(self._groups[event.group_id].executions)
            self.groups[event.group_id] = (at, version, members)

    def _ended(self, execution: Execution) -> None:
        self.ends[execution.member] = self.kernel.now
        super()._ended(execution)

    def _carry_out(self, decision: Decision) -> None:
        if isinstance(decision, CloseStep):
            self.closed.append(decision.groups)
            self.versions.append(self._version)
        super()._carry_out(decision)


def play(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> tuple[Measured, Outcome]:
    """Simulate and measure."""
    monkeypatch.setattr("opengyre.sim.world.Rollouts", WatchedRollouts)
    world = WatchedWorld(setting)
    outcome = world.run()
    groups = tuple(_group(world, name) for name in world.groups)
    tokens = {
        group.group_id: setting.workload.trained_share
        * sum(one.context_tokens for one in group.executions)
        for group in groups
    }
    steps = tuple(
        MeasuredStep(at, version, names, sum(tokens[name] for name in names), 0.0)
        for at, version, names in zip(outcome.steps, world.versions, world.closed, strict=True)
    )
    run = Measured(
        name="played",
        plan=setting.plan,
        policy=setting.policy,  # type: ignore[arg-type]
        limit_s=setting.workload.limit_s,
        token_budget=int(min(1e9, setting.machine.micro_step_tokens)),
        groups=groups,
        other_calls=(),
        steps=steps,
        planned_steps=len(steps),
        spans=tuple(lanes_of(outcome, len(setting.plan.cells))),
        levels=tuple(outcome.waterlevel),
    )
    return run, outcome


def _group(world: WatchedWorld, name: str) -> MeasuredGroup:
    at, version, members = world.groups[name]
    calls = world._rollouts.__dict__["notes"]["calls"]
    wait = world._setting.workload.evaluation_s
    executions = tuple(
        MeasuredExecution(
            name,
            one.started_at,
            world.ends[one.member] + wait,
            tuple(calls.get(one.member, ())),
            trained=True,
        )
        for one in members
    )
    return MeasuredGroup(name, version, at, executions)
