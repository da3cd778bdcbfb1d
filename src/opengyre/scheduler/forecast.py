"""Forecast: elastic that learns. A satellite joins training only when there is work enough for it.

A cell that leaves rollout makes the executions that stay slower; that is lost where it then waits for
groups to train on. So this policy learns from past bursts what a group costs and how long groups take
to come, and before the training cells fall behind it leaves calls room to run fast. Where training
keeps the cells busy nothing is to be gained, and it is elastic. Invariant: it only holds back
satellites that elastic would let join, and sends satellites home earlier, so whatever elastic keeps it
keeps; and as the core always joins, every run ends, however wrong an estimate is.
"""

from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import CORE, Decision
from opengyre.scheduler.cells import Cell
from opengyre.scheduler.elastic import Elastic
from opengyre.scheduler.state import Phase, State

BUSY = 0.36
"""Share of training in all cells' time from which this policy is elastic. In simulated settings 0.28 did
nearly as well, 0.2 gained less."""


class EarlyReturn(Elastic):
    """Satellites go home when the burst's last step is done; publication goes on beside it."""

    def send_back(self, state: State) -> list[Decision]:
        """Before the publication too, unless the run is over."""
        if state.phase is not Phase.PUBLISHING or not state.steps_left:
            return super().send_back(state)
        training = state.cells.having(CellRole.TRAINING)
        satellites = [cell for cell in training if cell.index != CORE]
        return [state.order_switch(cell, CellRole.ROLLOUT) for cell in satellites]


class Forecast(EarlyReturn):
    """Learns what a group costs and how long the burst's groups take to come. A satellite joins when
    all cells together could not do the burst's work until its last group is ready; or when those that
    train could not, and live work fits into a share of the room that stays. Until a step is done it
    joins when live work fits; where training keeps the cells busy, or what must be known is not, always.

    Cells that serve while few train are to serve evenly: a call is as slow as its cell is full.
    """

    evens_out = True

    def __init__(self, share: float = 0.5) -> None:
        """share: of the room; a half did well in simulated settings. Infinite = it need not fit."""
        self._share = share
        self._meter = Meter()
        self._arrivals = Arrivals()

    def arrange(self, state: State) -> list[Decision]:
        """Watch, then decide."""
        self._meter.watch(state)
        self._arrivals.watch(state)
        return super().arrange(state)

    def wants(self, state: State, cell: Cell) -> bool:
        """Whether the work is more than the training cells can do in the time that remains."""
        if cell.index == CORE or state.burst_is_full:
            return True
        room = state.rollout_capacity - cell.capacity
        fits = state.waterlevel <= self._share * room
        if state.steps_done == state.plan.first_step:
            return fits
        cost, remaining = self._meter.cost(state), self._arrivals.remaining(state)
        if cost is None or remaining is None or self._meter.load > BUSY:
            return True
        ready = len(state.groups.chosen) * cost
        work = ready - min(self._meter.spent, ready) + self._arrivals.to_come * cost
        training = 1 + state.cells.count(CellRole.TRAINING)
        all_of_them = len(state.plan.cells)
        return work >= all_of_them * remaining or (fits and work >= training * remaining)


class Meter:
    """Cell-seconds: what a group costs, what training cells spent, how much of the time it was."""

    def __init__(self) -> None:
        self.spent = 0.0
        """By training cells, idle ones too, since the first group of the step was admitted."""
        self.load = 0.0
        """Share of training in all cells' time: half the newest burst, half the past."""
        self._cells = 0
        self._at = 0.0
        self._burst = -1
        self._began = 0.0
        self._computed_before = 0.0

    @staticmethod
    def cost(state: State) -> float | None:
        """Of a group, on average over the steps that were done; None = not measured."""
        groups = (state.steps_done - state.plan.first_step) * state.plan.groups_per_step
        return state.computed_s / groups if groups and state.computed_s else None

    def watch(self, state: State) -> None:
        """After every event."""
        self.spent += self._cells * (state.now - self._at)
        self._at, self._cells = state.now, state.cells.count(CellRole.TRAINING)
        if not state.admitted:
            self.spent = 0.0
        if state.burst.index != self._burst:
            self._learn(state)

    def _learn(self, state: State) -> None:
        took = (state.now - self._began) * len(state.plan.cells)
        if self._burst >= 0 and took > 0:
            newest = (state.computed_s - self._computed_before) / took
            self.load = (self.load + newest) / 2 if self._burst else newest
        self._burst, self._began = state.burst.index, state.now
        self._computed_before = state.computed_s


class Arrivals:
    """When the groups of a burst became ready, and how long it took from there to the last one."""

    def __init__(self) -> None:
        self.to_come = 0
        """Groups of the burst that are not ready."""
        self._burst = -1
        self._seen: list[float] = []
        self._remaining: dict[int, float] = {}
        """Seconds until the last, by groups to come: half the newest burst, half the past."""

    def watch(self, state: State) -> None:
        """After every event."""
        burst, per_step = state.burst, state.plan.groups_per_step
        if burst.index != self._burst:
            self._burst, self._seen = burst.index, []
        total = (burst.end_step - burst.first_step) * per_step
        here = (state.steps_done - burst.first_step) * per_step + len(state.groups.chosen)
        self.to_come = total - here
        fresh = max(0, here - len(self._seen))
        self._seen += [state.now] * fresh
        if fresh and not self.to_come:
            for place, at in enumerate(self._seen):
                left, seconds = total - place - 1, state.now - at
                self._remaining[left] = (self._remaining.get(left, seconds) + seconds) / 2

    def remaining(self, state: State) -> float | None:
        """Seconds until the burst's last group is ready; None = not known."""
        if not self.to_come or self.to_come not in self._remaining or not self._seen:
            return None
        return max(0.0, self._remaining[self.to_come] - (state.now - self._seen[-1]))
