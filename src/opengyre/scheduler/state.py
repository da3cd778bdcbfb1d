"""All that the scheduler knows: cells, counters, groups, the burst under way.

Invariant: w = d - f is the number of live executions of the outstanding groups; a burst never
chooses more groups than its slots; no outstanding group is past, or bound to pass, the staleness
bound (unless a resume brought such a group).
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CarriedGroup, SchedulePlan, SwitchCell
from opengyre.scheduler.cells import Cell, Cells
from opengyre.scheduler.groups import Groups
from opengyre.scheduler.staleness import (
    Slots,
    Staleness,
    StalenessSummary,
    holds,
    newest_allowed,
    summarise,
)


class Phase(enum.StrEnum):
    """Where the run is."""

    WAITING = "waiting"
    """Before Begin."""
    OPEN = "open"
    """A burst takes groups and steps."""
    PUBLISHING = "publishing"
    """The burst's steps are done; its weights are on their way to the engines."""
    DONE = "done"
    """The last weights are published; cells go to rest."""
    FINISHED = "finished"
    """Finish was decided."""


class Counters(NamedTuple):
    """d, p, f: executions dispatched, started, ended; those of a resume's carried groups included."""

    dispatched: int
    started: int
    ended: int


@dataclass(frozen=True)
class Burst:
    """The optimiser steps [first_step, end_step) between two publications."""

    index: int
    first_step: int
    end_step: int


class State:
    """Changed by the scheduler at events, and by its policy through order_switch, keep, pause."""

    def __init__(self, plan: SchedulePlan) -> None:
        self.plan = plan
        self.cells = Cells(plan.cells, plan.standalone_capacity)
        self.groups = Groups(plan.group_size)
        self.phase = Phase.WAITING
        self.version = plan.first_version
        self.steps_done = plan.first_step
        self.burst = self._burst_at(plan.first_step, index=0)
        self.admitted = 0
        """Groups of the step under way that were admitted."""
        self.computed_s = 0.0
        """Cell-seconds that the micro-steps of this scheduler's steps took; 0 = not measured."""
        self.paused = False
        self.now = 0.0
        self.staleness_seen: list[Staleness] = []
        """One per consumed group, in order of consumption."""
        self._dispatched = self._started = self._ended = 0
        self._bound_holds = True

    def _burst_at(self, step: int, *, index: int) -> Burst:
        """Bursts end at multiples of mu, so that a resume in the middle of one keeps its end."""
        mu = self.plan.steps_per_burst
        return Burst(index, step, min((step // mu + 1) * mu, self.plan.total_steps))

    # -- what it says ------------------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        """d, p, f."""
        return Counters(self._dispatched, self._started, self._ended)

    @property
    def waterlevel(self) -> int:
        """w = d - f: executions that wait or run."""
        return self._dispatched - self._ended

    @property
    def rollout_capacity(self) -> int:
        """C_R: executions that cells in rollout and the standalone pool can serve now."""
        return self.cells.rollout_capacity

    @property
    def step_is_full(self) -> bool:
        """Whether all B groups of the step under way are chosen."""
        return len(self.groups.chosen) >= self.plan.groups_per_step

    @property
    def burst_is_full(self) -> bool:
        """Whether the groups of all remaining steps of the burst are chosen."""
        return self._slots().now == 0

    @property
    def streaming(self) -> bool:
        """Whether the burst has groups to train on now."""
        return self.phase is Phase.OPEN and bool(self.groups.chosen)

    @property
    def steps_left(self) -> int:
        """Steps until the end of the run."""
        return self.plan.total_steps - self.steps_done

    def staleness_summary(self) -> StalenessSummary:
        """Mean, p95 and maximum over all consumed groups, in versions and in steps."""
        return summarise(self.staleness_seen)

    # -- what the scheduler does to it ---------------------------------------------------------

    def begin(self, carried: tuple[CarriedGroup, ...]) -> None:
        """Take over the groups of an interrupted run."""
        for one in carried:
            group = self.groups.carry(one, self._step_of(one.version_dispatched))
            self._dispatched += self.plan.group_size
            self._started += self.plan.group_size - group.live
            self._ended += self.plan.group_size - group.live
        self.phase = Phase.OPEN if self.steps_left else Phase.DONE
        self._bound_holds = self._within_bound()

    def order_groups(self) -> int:
        """How many groups to dispatch at a boundary: (phi + mu) * B outstanding, no more than needed.

        A burst that a resume entered in its middle counts its own remaining steps for mu.
        """
        steps = self.burst.end_step - self.steps_done + self.plan.staleness_steps
        wanted = min(steps, self.steps_left) * self.plan.groups_per_step
        count = max(0, wanted - self.groups.count)
        self.groups.order(self.version, count)
        self._dispatched += count * self.plan.group_size
        return count

    def dispatched(self, group_id: str, version: int) -> None:
        """An ordered group is there."""
        assert version <= self.version, f"{group_id}: version {version} is not published"
        self.groups.dispatched(group_id, version, self._step_of(version))

    def start(self, execution_id: str, group_id: str) -> None:
        """An execution runs."""
        self._started += self.groups.start(execution_id, group_id)

    def end(self, execution_id: str, group_id: str) -> None:
        """An execution is over; one that never ran counts as started now."""
        self.start(execution_id, group_id)
        self.groups.end(execution_id, group_id)
        self._ended += 1

    def choose(self) -> None:
        """Fill the burst's free slots, in order of completion, as the staleness bound allows."""
        bound = self.plan.staleness_bound
        while self.groups.any_ready and (slots := self._slots()).now:
            newest = newest_allowed(self.groups.waiting, self.version, bound, slots)
            if not self.groups.choose(newest):
                return

    def step_done(self, step: int, computed_s: float) -> None:
        """Consume the step's groups."""
        assert step == self.steps_done, f"step {step} is not under way; {self.steps_done} is"
        assert self.admitted == self.plan.groups_per_step, f"step {step} is not closed"
        for group in self.groups.consume(self.plan.groups_per_step):
            age = Staleness(self.version - group.version, step - group.step)
            self.staleness_seen.append(age)
        self.steps_done += 1
        self.computed_s += computed_s
        self.admitted = 0
        if self.steps_done == self.burst.end_step:
            self.phase = Phase.PUBLISHING

    def published(self, version: int) -> None:
        """Open the next burst, if there is one."""
        assert self.phase is Phase.PUBLISHING, self.phase
        assert version == self.version + 1, f"{version} after {self.version}"
        self.version = version
        self.phase = Phase.OPEN if self.steps_left else Phase.DONE
        self.burst = self._burst_at(self.steps_done, index=self.burst.index + 1)

    def _slots(self) -> Slots:
        taken = len(self.groups.chosen)
        b = self.plan.groups_per_step
        return Slots(
            now=(self.burst.end_step - self.steps_done) * b - taken,
            per_burst=self.plan.steps_per_burst * b,
            total=self.steps_left * b - taken,
        )

    def _step_of(self, version: int) -> int:
        """Steps in the weights of a version, on the grid of full bursts."""
        mu = self.plan.steps_per_burst
        return self.burst.first_step // mu * mu - (self.version - version) * mu

    def _within_bound(self) -> bool:
        bound = self.plan.staleness_bound
        return holds(self.groups.waiting, self.version, bound, self._slots())

    # -- what a policy may do to it ------------------------------------------------------------

    def order_switch(self, cell: Cell, to: CellRole) -> SwitchCell:
        """Send a settled cell to the other role."""
        return self.cells.switch(cell, to, burst=self.burst.index)

    def keep_in_training(self, cell: Cell) -> None:
        """Let a training cell go on in this burst."""
        self.cells.keep(cell, self.burst.index)

    # -- proof -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise AssertionError when the invariant is broken."""
        self.cells.check()
        self.groups.check()
        assert 0 <= self._ended <= self._started <= self._dispatched, self.counters
        assert self.waterlevel == self.groups.live, (self.waterlevel, self.groups.live)
        assert self._slots().now >= 0, self._slots()
        assert self.admitted <= min(len(self.groups.chosen), self.plan.groups_per_step)
        assert self.burst.first_step <= self.steps_done <= self.burst.end_step, self.burst
        consumed = (self.steps_done - self.plan.first_step) * self.plan.groups_per_step
        assert len(self.staleness_seen) == consumed, (len(self.staleness_seen), consumed)
        assert not self._bound_holds or self._within_bound(), self.groups.waiting
