"""Drives the real scheduler: carries its decisions out in virtual time and reports back.

Invariant: the scheduler sees the same language of events and decisions as in a live run, and the
same seed gives the same events in the same order.
"""

import math
import random
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from opengyre.config.run import PolicyName
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import (
    CORE,
    AdmitGroup,
    Begin,
    CellLost,
    CellReturned,
    CloseStep,
    Decision,
    DispatchGroups,
    Event,
    ExecutionEnded,
    ExecutionStarted,
    Finish,
    GroupDispatched,
    GroupReady,
    PauseRollout,
    Policy,
    Published,
    PublishWeights,
    RestartCore,
    ResumeRollout,
    SchedulePlan,
    StepDone,
    SwitchCell,
    Switched,
)
from opengyre.scheduler.factory import make_policy
from opengyre.scheduler.scheduler import Scheduler
from opengyre.sim.execution import CONTEXT, NOTHING, Execution
from opengyre.sim.kernel import Kernel, uncollected
from opengyre.sim.outcome import Outcome, RoleChange
from opengyre.sim.rollouts import Rollouts
from opengyre.sim.script import Script
from opengyre.sim.training import Training
from opengyre.sim.workload import Machine, Workload, lognormal

MOST_EVENTS_PER_EXECUTION = 100_000
"""More than any execution makes; a simulation that goes beyond will never end."""


@dataclass(slots=True)
class _Group:
    """A group on its way to a step."""

    executions: list[Execution]
    durations: "array[float]"
    tokens: "array[float]"
    """What training costs, of each scored execution."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One simulation."""

    plan: SchedulePlan
    policy: PolicyName | Policy
    """By name, or any other of one's own."""
    workload: Workload
    machine: Machine
    seed: int = 0
    streaming: bool = True
    """Whether training begins before a step has all its groups."""
    log: bool = False


Stepped = Callable[[int], object]
"""Told how many steps are done, after each."""


def simulate(setting: Setting, stepped: Stepped | None = None) -> Outcome:
    """Run the whole plan. Raises SimulationError when the world stands still."""
    return World(setting, stepped).run()


class World:
    """Cluster, agents and failures around one scheduler."""

    def __init__(self, setting: Setting, stepped: Stepped | None = None) -> None:
        self._setting = setting
        self._stepped = stepped
        self._plan, self._machine = setting.plan, setting.machine
        policy = setting.policy
        chosen = make_policy(policy, self._plan) if isinstance(policy, str) else policy
        self._scheduler = Scheduler(self._plan, chosen)
        self.kernel = Kernel()
        self._outcome = Outcome()
        self.tally = self._outcome.tally
        self._events: deque[Event] = deque()
        self._groups: dict[str, _Group] = {}
        self._made = 0
        self._version = self._plan.first_version
        self.finished = False
        self._telling = False
        self._lives = random.Random(f"{setting.seed}/lives")
        pool = self._plan.standalone_capacity
        self._rollouts = Rollouts(
            self.kernel,
            setting.workload,
            self._machine,
            (*self._plan.cells, pool) if pool else self._plan.cells,
            self.tally,
            started=self._started,
            ended=self._ended,
            evens_out=chosen.evens_out,
        )
        self._cells = self._rollouts.cells
        self._training = Training(
            self.kernel,
            self._machine,
            self.tally,
            lambda step, computed_s: self._tell(StepDone(step, computed_s)),
            self._told_to_train,
            streaming=setting.streaming,
        )
        self._lost: set[int] = set()
        self._trainers: set[int] = set()
        """Cells that train or are on their way there."""
        self._switches = [0] * len(self._cells)
        """Number of each cell's newest switch: what a loss overtook is void."""

    def run(self) -> Outcome:
        """From Begin to Finish."""
        with uncollected():
            self.begin()
            self.play(lambda: self.finished)
        return self._sum_up()

    def begin(self) -> None:
        """Everything that happens at once."""
        for cell in self._cells:
            self._role(cell.index, CellRole.ROLLOUT)
            self._rollouts.opens(cell)
        for index in range(len(self._plan.cells)):
            self._expect_loss(index)
        self._tell(Begin())

    def play(self, done: Callable[[], bool]) -> None:
        """Until done. Raises SimulationError when the world stands still."""
        plan = self._plan
        executions = plan.total_steps * plan.groups_per_step * plan.group_size
        self.kernel.run(done, MOST_EVENTS_PER_EXECUTION * executions)

    def _sum_up(self) -> Outcome:
        outcome = self._outcome
        outcome.seconds = outcome.steps[-1] if outcome.steps else 0.0
        outcome.staleness = self._scheduler.state.staleness_summary()
        for cell in self._cells:
            cell.settle()
        outcome.rollout_busy_s = self._rollouts.fleet.busy_s
        outcome.calls_s = self._rollouts.fleet.calls_s
        outcome.training_busy_s = self._training.busy_s
        outcome.events = self.kernel.events
        return outcome

    # -- the scheduler -----------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        """Events that a decision causes at once are told after the decisions before it."""
        self._events.append(event)
        if self._telling:
            return
        self._telling = True
        while self._events and not self.finished:
            event = self._events.popleft()
            self._note(event)
            for decision in self._scheduler.decide(event, self.kernel.now):
                self._carry_out(decision)
            if isinstance(event, GroupDispatched | ExecutionEnded):
                self._outcome.level(self._scheduler.state.waterlevel, self.kernel.now)
            self._rollouts.fill()
        self._telling = False

    def _note(self, event: Event) -> None:
        if self._setting.log:
            self._outcome.log.append(f"{self.kernel.now!r} {event!r}")
        if isinstance(event, StepDone):
            self._outcome.steps.append(self.kernel.now)
            if self._stepped is not None:
                self._stepped(len(self._outcome.steps))

    def _carry_out(self, decision: Decision) -> None:  # noqa: C901 — one case a decision
        machine = self._machine
        match decision:
            case DispatchGroups(count):
                for _ in range(count):
                    self._dispatch()
            case AdmitGroup(group_id, _):
                self._training.admit(self._groups.pop(group_id).tokens)
            case CloseStep(step, _):
                self._training.close(step)
            case SwitchCell(cell, role):
                self._switch(cell, role)
            case PublishWeights(version):
                self.kernel.after(machine.publish_s, self._published, version)
            case PauseRollout():
                self._rollouts.pause()
            case ResumeRollout():
                self._rollouts.resume()
            case RestartCore():
                self.kernel.after(machine.restart_s, self._return, CORE)
            case Finish():
                self.finished = True

    def _published(self, version: int) -> None:
        self._version = version
        self._outcome.published.append(self.kernel.now)
        self._rollouts.published()
        self._tell(Published(version))

    # -- work ----------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        load, number = self._setting.workload, self._made
        self._made += 1
        group_id = f"g{number}"
        draw = random.Random(f"{self._setting.seed}/{number}")
        scripts = self._scripts(number, draw) if load.recorded else None
        task = lognormal(1.0, load.task_spread, draw.gauss(0.0, 1.0))
        group = _Group([], array("d"), array("d"))
        for place in range(self._plan.group_size):
            size = task * lognormal(load.calls, load.member_spread, draw.gauss(0.0, 1.0))
            own = draw.getrandbits(64)
            script = scripts[place] if scripts else None
            calls = len(script.turns) if script else max(1, round(size))
            execution = Execution(group_id, place, own, calls, script)
            group.executions.append(execution)
            self._rollouts.order(execution)
        self._groups[group_id] = group
        self._tell(GroupDispatched(group_id, self._version))

    def _scripts(self, number: int, draw: random.Random) -> list[Script]:
        """The recorded group of that number, or one drawn; of another size, its members drawn too."""
        load, size = self._setting.workload, self._plan.group_size
        own = load.recorded_in_order and number < len(load.recorded)
        chosen = load.recorded[number] if own else draw.choice(load.recorded)
        return list(chosen) if len(chosen) == size else draw.choices(chosen, k=size)

    def _started(self, execution: Execution) -> None:
        self._tell(ExecutionStarted(execution.member, execution.group_id))

    def _ended(self, execution: Execution) -> None:
        tally = self.tally
        tally.executions += 1
        tally.truncated += execution.truncated
        tally.sampled_tokens += self._rollouts.programs.sampled_tokens(execution)
        self._tell(ExecutionEnded(execution.member, execution.group_id))
        self.kernel.after(self._setting.workload.evaluation_s, self._verdict, execution)

    def _verdict(self, execution: Execution) -> None:
        load = self._setting.workload
        group = self._groups[execution.group_id]
        group.durations.append(self.kernel.now - load.evaluation_s - execution.started_at)
        script = execution.script
        excluded, no_spread = self._rollouts.programs.verdict(execution)
        if excluded:
            self.tally.excluded += 1
        elif script is not None:
            group.tokens.append(script.trained_tokens)
        else:
            group.tokens.append(execution.row[CONTEXT] * load.trained_share)
        if len(group.durations) == len(group.executions):
            if no_spread:
                del group.tokens[:]
            self._outcome.ended(group.durations)
            self._tell(GroupReady(execution.group_id))
        execution.row = NOTHING

    def _told_to_train(self) -> int:
        return len(self._trainers)

    # -- cells ---------------------------------------------------------------------------------------

    def _role(self, cell: int, role: CellRole) -> None:
        self._outcome.roles.append(RoleChange(self.kernel.now, cell, role))

    def _switch(self, cell: int, role: CellRole) -> None:
        self._role(cell, CellRole.SWITCHING)
        self._switches[cell] += 1
        switch = (cell, role, self._switches[cell])
        if role is CellRole.TRAINING:
            self._trainers.add(cell)
            self._rollouts.closes(self._cells[cell])
            self.kernel.after(self._machine.to_training_s, self._switched, switch)
        else:
            self._trainers.discard(cell)
            seconds = self._machine.to_rollout_s
            self._training.leave(cell, lambda: self.kernel.after(seconds, self._switched, switch))

    def _switched(self, switch: tuple[int, CellRole, int]) -> None:
        cell, role, number = switch
        if self._switches[cell] != number:
            return
        self._role(cell, role)
        if role is CellRole.TRAINING:
            self._training.join(cell)
        else:
            self._rollouts.opens(self._cells[cell])
        self._tell(Switched(cell, role))

    def _expect_loss(self, cell: int) -> None:
        mean = self._machine.mean_life_s
        if math.isfinite(mean):
            life = self._lives.expovariate(1.0 / mean)
            self.kernel.after(life, self._lose, cell)

    def _lose(self, cell: int) -> None:
        if cell in self._lost:
            return
        role = self._scheduler.state.cells[cell].role
        self._lost.add(cell)
        self._switches[cell] += 1
        self.tally.cells_lost += 1
        self._training.lose(cell)
        if role is CellRole.ROLLOUT:
            self._rollouts.closes(self._cells[cell], lost=True)
        self._role(cell, CellRole.LOST)
        self._trainers.discard(cell)
        self._tell(CellLost(cell))
        if cell != CORE:
            self.kernel.after(self._machine.restart_s, self._return, cell)

    def _return(self, cell: int) -> None:
        self._lost.discard(cell)
        self._role(cell, CellRole.ROLLOUT)
        self._rollouts.opens(self._cells[cell])
        self._expect_loss(cell)
        self._tell(CellReturned(cell))
