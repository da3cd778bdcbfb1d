"""What a simulation came to.

What is noted of every execution is kept as numbers in rows, not as objects: a world makes millions.
"""

from array import array
from dataclasses import dataclass, field

from opengyre.core.reasons import CellRole
from opengyre.scheduler.staleness import StalenessSummary
from opengyre.sim.tally import Tally


@dataclass(frozen=True, slots=True)
class RoleChange:
    """A cell took a role."""

    at: float
    cell: int
    role: CellRole


@dataclass
class Outcome:
    """Of one simulation. Times are seconds since its beginning."""

    seconds: float = 0.0
    """Until the last optimiser step."""
    steps: list[float] = field(default_factory=list)
    """End of each optimiser step."""
    published: list[float] = field(default_factory=list)
    """When each new version was everywhere."""
    roles: list[RoleChange] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    staleness: StalenessSummary | None = None
    rollout_busy_s: float = 0.0
    """Over all cells: with at least one call."""
    calls_s: float = 0.0
    """Of all calls on cells, summed; those held are in tally.held_s."""
    training_busy_s: float = 0.0
    events: int = 0
    log: list[str] = field(default_factory=list)
    """A line an event of the scheduler, when asked for."""
    _durations: "list[array[float]]" = field(default_factory=list)
    _level_at: "array[float]" = field(default_factory=lambda: array("d"))
    _levels: "array[int]" = field(default_factory=lambda: array("q"))

    def ended(self, durations: "array[float]") -> None:
        """A group is finished; durations of its executions."""
        self._durations.append(durations)

    def level(self, live: int, at: float) -> None:
        """So many executions are live after a dispatch or an end."""
        self._level_at.append(at)
        self._levels.append(live)

    @property
    def executions_s(self) -> list[list[float]]:
        """Durations of each finished group's executions."""
        return [list(group) for group in self._durations]

    @property
    def waterlevel(self) -> list[tuple[float, int]]:
        """(time, live executions) at each dispatch and each end."""
        return list(zip(self._level_at, self._levels, strict=True))

    @property
    def slowest_over_mean(self) -> float:
        """Mean over groups of the slowest execution over the group's mean."""
        ratios = [max(group) * len(group) / sum(group) for group in self._durations]
        return sum(ratios) / len(ratios)

    @property
    def execution_s(self) -> float:
        """Mean duration of an execution."""
        all_of_them = [seconds for group in self._durations for seconds in group]
        return sum(all_of_them) / len(all_of_them)
