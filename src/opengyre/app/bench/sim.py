"""What a simulated event costs in a small world and in large ones.

Invariant: all sizes play about as many events, in turns of about a second, each size in a process of
its own: so what else the machine does meets all of them alike, and none lies in the memory of another.
What counts is the mean over all turns. A small world is followed by one with another seed.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

from opengyre.app.bench.sim_world import bench_setting
from opengyre.app.machine import peak_bytes
from opengyre.core.protocols import Clock
from opengyre.sim.kernel import uncollected
from opengyre.sim.world import World

MEGABYTE = 1 << 20
TURN_EVENTS = 100_000
"""Of one size, before the next has its turn: long beside the milliseconds in which a world's memory
is in the caches again, short beside whatever disturbs a machine."""


@dataclass(frozen=True)
class WorldCost:
    """One size of world, over all its turns."""

    cells: int
    worlds: int
    """Of that size that were played to the end, one after another."""
    executions: int
    events: int
    seconds: float
    peak_mb: float
    """The most memory that their process ever took."""

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
            "worlds": self.worlds,
            "executions": self.executions,
            "events": self.events,
            "seconds": self.seconds,
            "events_per_second": self.events / self.seconds,
            "event_us": self.event_us,
            "execution_us": self.execution_us,
            "peak_mb": self.peak_mb,
        }


class Player:
    """Plays worlds of one size, one seed after another, as many events at a time as it is told to."""

    def __init__(self, cells: int, steps: int, clock: Clock, most: float = math.inf) -> None:
        """most: worlds."""
        self._cells, self._steps, self._clock = cells, steps, clock
        self._most = most
        self._worlds = self._executions = self._events = 0
        """Of the worlds that are over."""
        self._seconds = 0.0
        self._world: World | None = None

    def play(self, events: int) -> WorldCost:
        """So many events, if the last world has as many; returns what all of them cost so far."""
        began = self._clock.now()
        with uncollected():
            while events > 0 and self._worlds < self._most:
                events -= self._go_on(events)
        self._seconds += self._clock.now() - began
        return self._cost()

    def _go_on(self, events: int) -> int:
        """Returns how many events happened until so many did or the world was over."""
        if self._world is None:
            self._world = World(bench_setting(self._cells, self._steps, seed=self._worlds))
            self._world.begin()
        world, kernel = self._world, self._world.kernel
        before = kernel.events
        world.play(lambda: world.finished or kernel.events >= before + events)
        happened = kernel.events - before
        if world.finished:
            self._worlds += 1
            self._executions += world.tally.executions
            self._events += kernel.events
            self._world = None
        return happened

    def _cost(self) -> WorldCost:
        executions, events = self._executions, self._events
        if self._world is not None:
            executions += self._world.tally.executions
            events += self._world.kernel.events
        peak_mb = peak_bytes() / MEGABYTE
        return WorldCost(self._cells, self._worlds, executions, events, self._seconds, peak_mb)


class _Seat:
    """Of the one player of a process."""

    player: Player


def _sit(cells: int, steps: int, clock: Callable[[], Clock], most: float) -> None:
    _Seat.player = Player(cells, steps, clock(), most)


def _play(events: int) -> WorldCost:
    return _Seat.player.play(events)


def time_worlds(
    sizes: list[int], steps: int, clock: Callable[[], Clock]
) -> Iterator[list[WorldCost]]:
    """What each size cost so far, the smallest first, after every turn of all; until one world of the
    largest size is over."""
    with ExitStack() as processes:
        players = []
        for cells in sorted(set(sizes)):
            start = partial(_sit, cells, steps, clock, 1 if cells == max(sizes) else math.inf)
            process = ProcessPoolExecutor(1, get_context("spawn"), initializer=start)
            players.append(processes.enter_context(process))
        worlds = 0
        while not worlds:
            costs = [player.submit(_play, TURN_EVENTS).result() for player in players]
            worlds = costs[-1].worlds
            yield costs
