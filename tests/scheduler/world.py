"""A small world that obeys a scheduler and judges every decision by its own books.

Whatever can happen next is an action; a test picks which. Nothing here reads the scheduler's state
except to call its check() and to compare counters.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from opengyre.config.run import PolicyName
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import (
    AdmitGroup,
    Begin,
    CarriedGroup,
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
from opengyre.scheduler.factory import make_scheduler
from opengyre.scheduler.scheduler import Scheduler

ROLLOUT, TRAINING, SWITCHING, LOST = (
    CellRole.ROLLOUT,
    CellRole.TRAINING,
    CellRole.SWITCHING,
    CellRole.LOST,
)

ELASTIC = ("elastic", "forecast")
"""Policies that owe the rules of elastic."""

Action = Callable[[], None]


@dataclass
class Group:
    """One group in the world's books."""

    version: int
    queued: list[str]
    running: list[str] = field(default_factory=list)
    ready: bool = False
    step: int | None = None
    """Steps in the weights it was made under; unknown when carried."""

    @property
    def live(self) -> int:
        return len(self.queued) + len(self.running)


class World:
    """Runs one schedule. log holds every (event, now, decisions).

    by: a policy object instead of the named one, judged by the same rules as that.
    """

    def __init__(
        self,
        plan: SchedulePlan,
        policy: PolicyName,
        carried: tuple[CarriedGroup, ...] = (),
        *,
        bounded: bool = True,
        prefix: str = "g",
        by: Policy | None = None,
    ) -> None:
        self.prefix = prefix
        self.bounded = bounded
        self.plan, self.policy = plan, policy
        self.scheduler = Scheduler(plan, by) if by is not None else make_scheduler(plan, policy)
        self.log: list[tuple[Event, float, list[Decision]]] = []
        self.roles = [ROLLOUT] * len(plan.cells)
        self.targets: dict[int, CellRole] = {}
        self.told: dict[int, int] = {}
        """The version under which each cell was told to train, or stayed in training."""
        self.groups: dict[str, Group] = {}
        self.ready: list[str] = []
        """Groups that are ready and not admitted, in order of completion."""
        self.consumed: list[str] = []
        self.version = plan.first_version
        self.step = plan.first_step
        self.published_step = plan.first_step // plan.steps_per_burst * plan.steps_per_burst
        self.made = 0
        self.to_make = 0
        self.admitted: list[str] = []
        self.closed = False
        self.publishing: int | None = None
        self.again: set[str] = set()
        """Executions that wait for a place after they had one."""
        self.core_restarting = self.paused = self.finished = False
        for one in carried:
            self._carry(one)
        self.tell(Begin(carried))

    def _carry(self, one: CarriedGroup) -> None:
        live = 0 if one.ready else self.plan.group_size - one.ended
        queued = [f"{one.group_id}-again-{i}" for i in range(live)]
        self.groups[one.group_id] = Group(one.version_dispatched, queued, ready=one.ready)
        if one.ready:
            self.ready.append(one.group_id)

    # -- the world's own view ------------------------------------------------------------------

    @property
    def waterlevel(self) -> int:
        live = sum(group.live for group in self.groups.values())
        return live + self.to_make * self.plan.group_size

    @property
    def capacity(self) -> int:
        cells = zip(self.roles, self.plan.cells, strict=True)
        return self.plan.standalone_capacity + sum(c for role, c in cells if role is ROLLOUT)

    @property
    def running(self) -> int:
        return sum(len(group.running) for group in self.groups.values())

    def outstanding(self) -> tuple[CarriedGroup, ...]:
        """What a resume would carry: half-done executions start again."""
        size = self.plan.group_size
        return tuple(
            CarriedGroup(name, group.version, group.ready, ended=size - group.live)
            for name, group in self.groups.items()
        )

    # -- what can happen ----------------------------------------------------------------------

    def actions(self) -> list[Action]:
        """Everything that can happen next, apart from losses. Empty only when the world is stuck."""
        return [] if self.finished else self.answers() + self.work()

    def answers(self) -> list[Action]:
        """What carries out a decision."""
        found: list[Action] = [
            partial(self._switched, cell, role) for cell, role in sorted(self.targets.items())
        ]
        if self.to_make:
            found.append(self._make_group)
        if self.core_restarting:
            found.append(partial(self.give_back, 0))
        if self.closed and self.roles[0] is TRAINING:
            found.append(self._step_done)
        if self.publishing is not None and self.roles[0] is not LOST:
            found.append(self._published)
        return found

    def work(self) -> list[Action]:
        """What executions do by themselves, those of the newest group last."""
        found: list[Action] = []
        serving = not self.paused and self.capacity > 0
        for name, group in self.groups.items():
            if serving and group.queued and self.running < self.capacity:
                found.append(partial(self._start, name))
            if serving:
                found.extend(partial(self._end, name, i) for i in range(len(group.running)))
            if not group.live and not group.ready:
                found.append(partial(self._ready, name))
        return found

    def lose(self, cell: int) -> None:
        """The cell's process dies; its work moves or waits."""
        self.roles[cell] = LOST
        self.targets.pop(cell, None)
        self.tell(CellLost(cell))

    def give_back(self, cell: int) -> None:
        """The cell's process is there again."""
        self.roles[cell] = ROLLOUT
        if cell == 0:
            self.core_restarting = False
        self.tell(CellReturned(cell))

    def cancel_queued(self, name: str) -> None:
        """An execution that never got a place ends (its sandbox could not be made)."""
        execution = self.groups[name].queued.pop()
        self.again.discard(execution)
        self.tell(ExecutionEnded(execution, name))

    def time_out(self, name: str) -> None:
        """A harness limit ends a running execution, even while no cell serves it."""
        self.tell(ExecutionEnded(self.groups[name].running.pop(0), name))

    def repeat(self, name: str) -> None:
        """A running execution is retried: it waits for a place and will be reported again."""
        group = self.groups[name]
        group.queued.append(group.running.pop(0))
        self.again.add(group.queued[-1])

    def _switched(self, cell: int, role: CellRole) -> None:
        self.roles[cell] = self.targets.pop(cell)
        self.tell(Switched(cell, role))

    def _make_group(self) -> None:
        self.to_make -= 1
        self.made += 1
        name = f"{self.prefix}{self.made}"
        queued = [f"{name}-e{i}" for i in range(self.plan.group_size)]
        self.groups[name] = Group(self.version, queued, step=self.published_step)
        self.tell(GroupDispatched(name, self.version))

    def _start(self, name: str) -> None:
        group = self.groups[name]
        group.running.append(group.queued.pop(0))
        self.again.discard(group.running[-1])
        self.tell(ExecutionStarted(group.running[-1], name))

    def _end(self, name: str, index: int) -> None:
        self.tell(ExecutionEnded(self.groups[name].running.pop(index), name))

    def _ready(self, name: str) -> None:
        self.groups[name].ready = True
        self.ready.append(name)
        self.tell(GroupReady(name))

    def _step_done(self) -> None:
        gone = [self.groups.pop(name) for name in self.admitted]
        self.consumed.extend(self.admitted)
        self.admitted, self.closed = [], False
        self.step += 1
        self.tell(StepDone(self.step - 1))
        seen = self.scheduler.state.staleness_seen[-len(gone) :]
        for group, age in zip(gone, seen, strict=True):
            assert age.versions == self.version - group.version
            assert not self.bounded or age.versions <= self.plan.staleness_bound
            assert group.step is None or age.steps == self.step - 1 - group.step

    def _published(self) -> None:
        assert self.publishing is not None
        self.version, self.publishing = self.publishing, None
        self.published_step = self.step
        trained = self.roles[0] is TRAINING
        self.tell(Published(self.version))
        if self.policy in ELASTIC and trained:
            self._judge_core_stays()

    # -- obeying and judging -------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """Report an event, judge the answer, carry it out."""
        now = float(len(self.log))
        decisions = self.scheduler.decide(event, now)
        self.log.append((event, now, decisions))
        boundary = isinstance(event, (Begin, Published))
        for decision in decisions:
            self._obey(decision, boundary=boundary)
        self.check(boundary=boundary)

    def _obey(self, decision: Decision, *, boundary: bool) -> None:
        assert not self.finished, f"{decision} after Finish"
        match decision:
            case DispatchGroups():
                assert boundary
                assert decision.count > 0
                self.to_make += decision.count
            case AdmitGroup():
                self._admit(decision)
            case CloseStep():
                self._close(decision)
            case SwitchCell():
                self._switch(decision)
            case PublishWeights() | Finish():
                self._end_of_burst(decision)
            case RestartCore():
                assert self.roles[0] is LOST
                assert not self.core_restarting
                self.core_restarting = True
            case PauseRollout() | ResumeRollout():
                self._pause(pause=isinstance(decision, PauseRollout))

    def _admit(self, decision: AdmitGroup) -> None:
        assert decision.step == self.step
        place = self.ready.index(decision.group_id)
        version = self.groups[decision.group_id].version
        passed_over = [self.groups[name].version for name in self.ready[:place]]
        assert all(one > version for one in passed_over), "in order of completion, or older first"
        self.admitted.append(self.ready.pop(place))

    def _close(self, decision: CloseStep) -> None:
        assert not self.closed
        assert decision == CloseStep(self.step, tuple(self.admitted))
        assert len(self.admitted) == self.plan.groups_per_step
        self.closed = True

    def _end_of_burst(self, decision: PublishWeights | Finish) -> None:
        over = self.step == self.plan.total_steps
        assert over or self.step % self.plan.steps_per_burst == 0
        assert self.publishing is None
        if isinstance(decision, PublishWeights):
            assert decision.version == self.version + 1
            self.publishing = decision.version
        else:
            assert over
            assert not self.groups
            assert not self.to_make
            assert not self.paused
            assert self.policy == "async" or set(self.roles) <= {ROLLOUT, LOST}
            self.finished = True

    def _pause(self, *, pause: bool) -> None:
        assert self.policy == "colocate"
        assert self.paused is not pause
        if not pause:
            assert set(self.roles) <= {ROLLOUT, LOST}
        self.paused = pause

    def _switch(self, decision: SwitchCell) -> None:
        cell = decision.cell
        assert {self.roles[cell], decision.to} == {ROLLOUT, TRAINING}
        if self.policy in ELASTIC and decision.to is TRAINING:
            self._judge_join(cell)
        if self.policy in ELASTIC and decision.to is ROLLOUT:
            self._judge_return(cell)
        if self.policy == "colocate":
            assert self.paused
        if self.policy == "async":
            assert decision.to is TRAINING
            assert cell < self.plan.training_cells
        self.roles[cell] = SWITCHING
        self.targets[cell] = decision.to
        if decision.to is TRAINING:
            self.told[cell] = self.version

    def _judge_join(self, cell: int) -> None:
        assert SWITCHING not in self.roles, "one switch at a time"
        assert self.publishing is None, "weights are on their way"
        assert set(self.roles[:cell]) <= {TRAINING, LOST}, "core first, then in order"
        assert cell == 0 or self.roles[0] is TRAINING, "no satellite without its core"
        assert self.waterlevel <= self.capacity - self.plan.cells[cell], "live work is covered"

    def _judge_return(self, cell: int) -> None:
        if self.told[cell] < self.version:
            return  # its burst is over
        ends = {self.plan.total_steps, self.published_step + self.plan.steps_per_burst}
        if self.policy == "forecast" and cell and self.step in ends - {self.plan.total_steps}:
            return  # its burst's last step is done
        assert self.step not in ends, "weights are on their way"
        assert self.waterlevel > 0, "nobody waits for it"
        assert self.capacity == 0, "others serve"
        assert SWITCHING not in self.roles, "one switch at a time"
        assert TRAINING not in self.roles[cell + 1 :], "the last of those that train"

    def _judge_core_stays(self) -> None:
        live = zip(self.roles[1:], self.plan.cells[1:], strict=True)
        rest = sum(capacity for role, capacity in live if role is not LOST)
        served = self.waterlevel <= rest + self.plan.standalone_capacity
        stays = self.roles[0] is TRAINING
        assert stays is (self.closed and served), "if the next batch is ready and work is covered"
        if stays:
            self.told[0] = self.version

    def check(self, *, boundary: bool) -> None:
        """What holds after every event."""
        state = self.scheduler.state
        state.check()
        assert state.waterlevel == self.waterlevel
        assert state.rollout_capacity == self.capacity
        assert state.counters.started - state.counters.ended == self.running + len(self.again)
        assert [cell.role for cell in state.cells] == self.roles
        if self.policy in ELASTIC:
            self._check_training()
        if self.policy == "async" and self.step < self.plan.total_steps:
            assert ROLLOUT not in self.roles[: self.plan.training_cells]
        if boundary and not self.finished:
            self._check_outstanding()

    def _check_training(self) -> None:
        """Satellites return when their burst ends."""
        training = [cell for cell, role in enumerate(self.roles) if cell and role is TRAINING]
        assert all(self.told[cell] == self.version for cell in training), self.told

    def _check_outstanding(self) -> None:
        plan = self.plan
        steps = plan.steps_per_burst - self.step % plan.steps_per_burst + plan.staleness_steps
        wanted = min(steps, plan.total_steps - self.step) * plan.groups_per_step
        carried = self.made + self.to_make == 0
        found = len(self.groups) + self.to_make
        assert found == wanted or (carried and found > wanted)

    # -- playing ---------------------------------------------------------------------------------

    def drain(self, pick: Callable[[int], int]) -> None:
        """Let the world answer until the run is finished; pick(n) chooses among n actions."""
        while not self.finished:
            actions = self.actions()
            if not actions and self.policy == "async":
                self.give_back(self.roles.index(LOST))
                continue
            assert actions, f"stuck: {self.roles}, w = {self.waterlevel}"
            actions[pick(len(actions))]()

    def drain_newest_first(self) -> None:
        """Decisions are carried out at once, and old groups end only when nothing else can."""
        while not self.finished:
            (self.answers() or self.work()[-1:])[0]()

    def replayed(self) -> list[list[Decision]]:
        """What a fresh scheduler decides on the same events."""
        fresh = make_scheduler(self.plan, self.policy)
        return [fresh.decide(event, now) for event, now, _ in self.log]

    def decided(self, kind: type[Decision]) -> list[Decision]:
        """All decisions of one kind, in order."""
        return [one for _, _, decisions in self.log for one in decisions if isinstance(one, kind)]

    def switches(self) -> Counter[tuple[int, CellRole]]:
        """How often each cell was told to take each role."""
        told = (one for _, _, decisions in self.log for one in decisions)
        return Counter((one.cell, one.to) for one in told if isinstance(one, SwitchCell))
