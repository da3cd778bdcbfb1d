"""The bench of the simulator: equal work a cell, and the best turn of each size."""

import json
from pathlib import Path

from opengyre.app.bench.sim import WorldCost, bench_setting, time_worlds
from opengyre.app.bench.sim_command import ratio, worlds_json, worlds_table
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


def test_each_size_is_timed_in_every_turn_and_its_best_turn_counts(tmp_path: Path) -> None:
    told: list[WorldCost] = []
    costs = time_worlds([6, 2], 1, 2, Ticking(), told.append)
    assert [one.cells for one in told] == [2, 6, 2, 6]
    assert [one.cells for one in costs] == [2, 6]
    for best in costs:
        same = [one for one in told if one.cells == best.cells]
        assert best.event_us == min(one.event_us for one in same)
        assert best.executions >= best.runs * best.cells * 4
    figures = worlds_json(costs, 1)
    assert figures["event_largest_over_smallest"] == ratio(costs)
    assert json.loads(json.dumps(figures))["worlds"][1]["cells"] == 6
    assert worlds_table(costs).row_count == 2
