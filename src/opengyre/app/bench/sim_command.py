"""What `opengyre bench sim` does: time worlds of several sizes, print, and write JSON if asked."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from opengyre.app.bench.sim import WorldCost, time_worlds
from opengyre.app.machine import machine
from opengyre.app.results import write_json
from opengyre.app.wall import WallClock


def run_sim(sizes: list[int], steps: int, repeats: int, json: Path | None) -> None:
    """Time the worlds, the smallest first."""
    console = Console()

    def tell(cost: WorldCost) -> None:
        rate = cost.events / cost.seconds
        console.print(f"{cost.cells:,} cells: {rate:,.0f} events/s", highlight=False)

    costs = time_worlds(sizes, steps, repeats, WallClock(), tell)
    console.print(worlds_table(costs))
    console.print(largest_words(costs), highlight=False, soft_wrap=True)
    if json is not None:
        write_json(worlds_json(costs, steps), json)


def worlds_table(costs: list[WorldCost]) -> Table:
    """A line a size; × is over the smallest world, MB is all that the process took until then."""
    table = Table(title="What an event costs as the world grows", box=SIMPLE_HEAD)
    headings = ("cells", "executions", "events/s", "µs/event", "×", "µs/execution", "×", "MB")
    for heading in headings:
        table.add_column(heading, justify="right")
    first = costs[0]
    for cost in costs:
        table.add_row(
            f"{cost.cells:,}",
            f"{cost.executions // cost.runs:,}",
            f"{cost.events / cost.seconds:,.0f}",
            f"{cost.event_us:.2f}",
            f"{cost.event_us / first.event_us:.2f}",
            f"{cost.execution_us:.0f}",
            f"{cost.execution_us / first.execution_us:.2f}",
            f"{cost.peak_mb:.0f}",
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


def worlds_json(costs: list[WorldCost], steps: int) -> dict[str, object]:
    """All figures."""
    return {
        "bench": "sim",
        "steps": steps,
        "worlds": [cost.as_json() for cost in costs],
        "event_largest_over_smallest": ratio(costs),
        "machine": machine(),
    }
