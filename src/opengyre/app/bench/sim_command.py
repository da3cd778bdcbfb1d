"""What `opengyre bench sim` does: time worlds of several sizes, print, and write JSON if asked."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.status import Status
from rich.table import Table

from opengyre.app.bench.sim import WorldCost, time_worlds
from opengyre.app.bench.sim_work import count_world
from opengyre.app.machine import machine
from opengyre.app.results import write_json
from opengyre.app.wall import WallClock

MOST_COUNTED = 1_000
"""Cells of a world whose instructions are counted: half a minute; ten times as many take five."""


def run_sim(sizes: list[int], steps: int, json: Path | None, *, work: bool) -> None:
    """Time the worlds, the smallest first, and count what is done in those that are small enough."""
    console = Console()
    costs: list[WorldCost] = []
    with console.status("") as status:
        for costs in time_worlds(sizes, steps, WallClock):
            status.update(f"{costs[-1].events:,} events among {costs[-1].cells:,} cells")
        counted = [cost.cells for cost in costs if cost.cells <= MOST_COUNTED] if work else []
        counts = {cells: _count(cells, steps, status) for cells in counted}
    console.print(worlds_table(costs, counts))
    console.print(largest_words(costs), highlight=False, soft_wrap=True)
    if json is not None:
        write_json(worlds_json(costs, steps, counts), json)


def _count(cells: int, steps: int, status: Status) -> float:
    status.update(f"counting instructions among {cells:,} cells")
    return count_world(cells, steps)


def worlds_table(costs: list[WorldCost], counts: dict[int, float]) -> Table:
    """A line a size; × is over the smallest world. counts: instructions an event, by size."""
    table = Table(title="What an event costs as the world grows", box=SIMPLE_HEAD)
    headings = ("cells", "executions", "events/s", "µs/event", "×", "µs/execution", "×", "MB")
    for heading in (*headings, "instructions/event") if counts else headings:
        table.add_column(heading, justify="right")
    first = costs[0]
    for cost in costs:
        table.add_row(
            f"{cost.cells:,}",
            f"{cost.executions:,}",
            f"{cost.events / cost.seconds:,.0f}",
            f"{cost.event_us:.2f}",
            f"{cost.event_us / first.event_us:.2f}",
            f"{cost.execution_us:.0f}",
            f"{cost.execution_us / first.execution_us:.2f}",
            f"{cost.peak_mb:.0f}",
            *[f"{counts[cost.cells]:.0f}" if cost.cells in counts else "–"][: len(counts)],
        )
    return table


def ratio(costs: list[WorldCost]) -> float:
    """What an event costs in the largest world over what it costs in the smallest."""
    return costs[-1].event_us / costs[0].event_us


def largest_words(costs: list[WorldCost]) -> str:
    """The ratio in a sentence."""
    small, large = costs[0], costs[-1]
    return (
        f"an event among {large.cells:,} cells costs {ratio(costs):.2f} times one among "
        f"{small.cells:,}"
    )


def worlds_json(costs: list[WorldCost], steps: int, counts: dict[int, float]) -> dict[str, object]:
    """All figures; instructions are null where they were not counted."""
    return {
        "bench": "sim",
        "steps": steps,
        "worlds": [
            cost.as_json() | {"event_instructions": counts.get(cost.cells)} for cost in costs
        ],
        "event_largest_over_smallest": ratio(costs),
        "machine": machine(),
    }
