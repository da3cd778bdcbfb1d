"""The bench of the simulator: equal work a cell, and sizes that take turns."""

import json

from opengyre.app.bench.sim import Player, time_worlds
from opengyre.app.bench.sim_command import ratio, worlds_json, worlds_table
from opengyre.app.bench.sim_work import count_world
from opengyre.app.bench.sim_world import bench_setting
from opengyre.app.wall import WallClock
from opengyre.sim.world import simulate


class Ticking:
    """A clock that goes on by a second whenever it is asked."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        self._now += 1.0
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


def test_worlds_of_the_bench_do_the_same_work_a_cell() -> None:
    small, large = (simulate(bench_setting(cells, 3, seed=1)) for cells in (4, 40))
    assert small.tally.executions / 4 == large.tally.executions / 40
    assert small.tally.trained_tokens > 0
    a_cell = small.events / 4, large.events / 40
    assert max(a_cell) < 1.5 * min(a_cell)


def test_a_size_plays_as_many_events_as_it_is_told_one_world_after_another() -> None:
    player = Player(4, 1, Ticking())
    whole = simulate(bench_setting(4, 1, seed=0))
    some = player.play(whole.events // 2)
    assert (some.events, some.worlds, some.seconds) == (whole.events // 2, 0, 1.0)
    more = player.play(10 * whole.events)
    assert (more.events, more.seconds) == (some.events + 10 * whole.events, 2.0)
    assert more.worlds > 5
    assert more.executions >= more.worlds * whole.tally.executions
    last = Player(4, 1, Ticking(), most=1).play(10 * whole.events)
    assert (last.events, last.worlds) == (whole.events, 1)


def test_sizes_take_turns_until_one_world_of_the_largest_is_over() -> None:
    costs = list(time_worlds([6, 2], 1, WallClock))[-1]
    assert [one.cells for one in costs] == [2, 6]
    assert costs[-1].events == simulate(bench_setting(6, 1, seed=0)).events
    assert costs[-1].worlds == 1
    assert costs[0].events >= costs[-1].events
    counts = {2: count_world(2, 1)}
    assert count_world(2, 1) == counts[2]
    figures = worlds_json(costs, 1, counts)
    assert figures["event_largest_over_smallest"] == ratio(costs)
    first, second = json.loads(json.dumps(figures))["worlds"]
    assert (first["event_instructions"], second["event_instructions"]) == (counts[2], None)
    assert worlds_table(costs, counts).row_count == worlds_table(costs, {}).row_count == 2
