"""What a simulated event costs in a small world and in large ones.

Invariant: every world has the same cells, agents and policy and as many executions a cell, so its
figures differ by its size alone. Worlds are timed in turns, and the best turn of each counts: what
else the machine does only ever adds time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opengyre.app.machine import peak_bytes
from opengyre.core.protocols import Clock
from opengyre.scheduler.base import SchedulePlan
from opengyre.sim.workload import Machine, Workload
from opengyre.sim.world import Setting, simulate

PLACES = 8
"""Of a cell. With GROUP of 4, mu = phi = 1 and a group a cell, all places are taken."""
GROUP = 4
MEGABYTE = 1 << 20
LEAST_S = 2.0
"""A small world is simulated with one seed after another until that has passed."""
LOAD = Workload(
    calls=6.0,
    answer_tokens=300.0,
    observation_tokens=700.0,
    first_prompt_tokens=2000.0,
    tool_s=5.0,
    task_spread=0.3,
    member_spread=0.4,
    answer_spread=0.5,
    tool_spread=1.0,
    evaluation_s=1.0,
    limit_s=1000.0,
)
"""Everything that costs an event happens: queues, tools, prompts, a limit, verdicts."""
CELL = Machine(
    decode_alone_tokens_s=60.0,
    decode_full_tokens_s=200.0,
    prefill_tokens_s=6000.0,
    train_tokens_s=500.0,
    micro_step_tokens=8000.0,
    step_s=1.0,
    publish_s=1.0,
    kv_move_tokens_s=1e5,
)
"""Switches take no time: as they come one by one, a large world could else train less."""


@dataclass(frozen=True)
class WorldCost:
    """One size of world, in one turn."""

    cells: int
    runs: int
    """Worlds of that size, one after another."""
    executions: int
    events: int
    seconds: float
    peak_mb: float
    """Memory that the process has taken at most until then."""

    @property
    def event_us(self) -> float:
        """Microseconds an event."""
        return self.seconds / self.events * 1e6

    @property
    def execution_us(self) -> float:
        """Microseconds an execution."""
        return self.seconds / self.executions * 1e6

    def as_json(self) -> dict[str, object]:
        """As --json writes it."""
        return {
            "cells": self.cells,
            "runs": self.runs,
            "executions": self.executions,
            "events": self.events,
            "seconds": self.seconds,
            "events_per_second": self.events / self.seconds,
            "event_us": self.event_us,
            "execution_us": self.execution_us,
            "peak_mb": self.peak_mb,
        }


def bench_setting(cells: int, steps: int, seed: int) -> Setting:
    """A world of so many cells; each has 4 executions a step."""
    plan = SchedulePlan(
        cells=(PLACES,) * cells,
        group_size=GROUP,
        groups_per_step=cells,
        steps_per_burst=1,
        staleness_steps=1,
        total_steps=steps,
    )
    return Setting(plan=plan, policy="elastic", workload=LOAD, machine=CELL, seed=seed)


def time_world(cells: int, steps: int, clock: Clock) -> WorldCost:
    """One world, or several small ones."""
    runs = executions = events = 0
    began = clock.now()
    while not runs or clock.now() - began < LEAST_S:
        outcome = simulate(bench_setting(cells, steps, runs))
        runs += 1
        executions += outcome.tally.executions
        events += outcome.events
    seconds = clock.now() - began
    return WorldCost(cells, runs, executions, events, seconds, peak_bytes() / MEGABYTE)


def time_worlds(
    sizes: list[int], steps: int, repeats: int, clock: Clock, tell: Callable[[WorldCost], None]
) -> list[WorldCost]:
    """The best turn of each size, the smallest first; tell hears of every turn."""

    def turns() -> Iterator[WorldCost]:
        for _ in range(repeats):
            for cells in sorted(sizes):
                cost = time_world(cells, steps, clock)
                tell(cost)
                yield cost

    costs = list(turns())
    return [
        min((one for one in costs if one.cells == cells), key=lambda one: one.event_us)
        for cells in sorted(set(sizes))
    ]
