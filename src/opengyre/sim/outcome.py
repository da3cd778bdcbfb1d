"""What a simulation came to."""

from dataclasses import dataclass, field

from opengyre.core.reasons import CellRole
from opengyre.scheduler.staleness import StalenessSummary
from opengyre.sim.tally import Tally


@dataclass(frozen=True)
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
    executions_s: list[list[float]] = field(default_factory=list)
    """Durations of each finished group's executions."""
    roles: list[RoleChange] = field(default_factory=list)
    waterlevel: list[tuple[float, int]] = field(default_factory=list)
    """(time, live executions) at each dispatch and each end."""
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

    @property
    def slowest_over_mean(self) -> float:
        """Mean over groups of the slowest execution over the group's mean."""
        ratios = [max(group) * len(group) / sum(group) for group in self.executions_s]
        return sum(ratios) / len(ratios)

    @property
    def execution_s(self) -> float:
        """Mean duration of an execution."""
        all_of_them = [seconds for group in self.executions_s for seconds in group]
        return sum(all_of_them) / len(all_of_them)
