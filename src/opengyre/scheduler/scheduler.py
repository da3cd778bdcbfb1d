"""The scheduler: one event and a time in, a list of decisions out.

Invariant: the same events give the same decisions. Dispatch, choice of groups, steps and
publication are the same code under every policy; a policy adds only switches and pauses.
"""

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
    Policy,
    Published,
    PublishWeights,
    RestartCore,
    SchedulePlan,
    StepDone,
    Switched,
)
from opengyre.scheduler.state import Phase, State


class Scheduler:
    """Drives a run from Begin to Finish."""

    def __init__(self, plan: SchedulePlan, policy: Policy) -> None:
        self.state = State(plan)
        self._policy = policy

    def decide(self, event: Event, now: float) -> list[Decision]:
        """Take in what happened and say what to do, in order. After Finish: nothing.

        Raises AssertionError when the event contradicts what was reported before.
        """
        state = self.state
        if state.phase is Phase.FINISHED:
            return []
        assert now >= state.now, f"time went back from {state.now} to {now}"
        assert isinstance(event, Begin) is (state.phase is Phase.WAITING), event
        state.now = now
        work = self._take(event)
        admissions = self._admit()
        decisions = [*self._policy.arrange(state), *work, *admissions]
        if state.phase is Phase.DONE and self._policy.at_rest(state):
            state.phase = Phase.FINISHED
            decisions.append(Finish())
        return decisions

    def _take(self, event: Event) -> list[Decision]:
        match event:
            case Begin():
                self.state.begin(event.carried)
                return self._dispatch()
            case StepDone():
                self.state.step_done(event.step, event.computed_s)
                if self.state.phase is Phase.PUBLISHING:
                    return [PublishWeights(self.state.version + 1)]
            case Published():
                self.state.published(event.version)
                return self._dispatch()
            case GroupDispatched() | ExecutionStarted() | ExecutionEnded() | GroupReady():
                self._take_work(event)
            case Switched() | CellLost() | CellReturned():
                return self._take_cell(event)
        return []

    def _take_work(
        self, event: GroupDispatched | ExecutionStarted | ExecutionEnded | GroupReady
    ) -> None:
        match event:
            case GroupDispatched():
                self.state.dispatched(event.group_id, event.version)
            case ExecutionStarted():
                self.state.start(event.execution_id, event.group_id)
            case ExecutionEnded():
                self.state.end(event.execution_id, event.group_id)
            case GroupReady():
                self.state.groups.complete(event.group_id)

    def _take_cell(self, event: Switched | CellLost | CellReturned) -> list[Decision]:
        cells = self.state.cells
        match event:
            case Switched():
                cells.switched(event.cell, event.role)
            case CellLost():
                if cells.lose(event.cell) and event.cell == CORE:
                    return [RestartCore()]
            case CellReturned():
                cells.give_back(event.cell)
        return []

    def _dispatch(self) -> list[Decision]:
        count = self.state.order_groups()
        return [DispatchGroups(count)] if count else []

    def _admit(self) -> list[Decision]:
        """Stream the chosen groups into the step under way; the next step's wait for StepDone."""
        state = self.state
        if state.phase is not Phase.OPEN:
            return []
        state.choose()
        full = state.plan.groups_per_step
        fresh = state.groups.chosen[state.admitted : full]
        decisions: list[Decision] = [AdmitGroup(one, state.steps_done) for one in fresh]
        state.admitted += len(fresh)
        if fresh and state.admitted == full:
            decisions.append(CloseStep(state.steps_done, tuple(state.groups.chosen[:full])))
        return decisions
