"""The scheduler's language: what the world reports, what the scheduler decides, and the plan.

The owner of the world (the live controller, a simulator) carries decisions out in order and reports
back by events. A decision stands until its event arrives, through a restart of the core too:

    DispatchGroups -> GroupDispatched, one a group       CloseStep      -> StepDone
    SwitchCell     -> Switched (or CellLost)             PublishWeights -> Published
    RestartCore    -> CellReturned(0)
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from opengyre.core.errors import UserError
from opengyre.core.reasons import CellRole

if TYPE_CHECKING:
    from opengyre.scheduler.state import State

CORE = 0
"""Index of the cell that holds the optimiser: the first in the switching order."""


@dataclass(frozen=True, kw_only=True)
class SchedulePlan:
    """What does not change during a run. Counts are of groups, executions, steps or cells."""

    cells: tuple[int, ...]
    """Capacity of each cell in executions; index 0 is the core."""
    group_size: int
    """N: executions of a group."""
    groups_per_step: int
    """B."""
    steps_per_burst: int
    """mu."""
    staleness_steps: int
    """phi."""
    total_steps: int
    """Optimiser steps of the whole run, those before a resume included."""
    standalone_capacity: int = 0
    """Executions that the engines which always roll out serve."""
    training_cells: int = 1
    """For the policy "async": how many cells always train."""
    first_step: int = 0
    """Steps that were done before this scheduler took over."""
    first_version: int = 0
    """Weight version that is published when this scheduler takes over."""

    def __post_init__(self) -> None:
        self._at_least(1, "cells", len(self.cells))
        self._at_least(1, "the smallest capacity in cells", min(self.cells))
        for name in ("group_size", "groups_per_step", "steps_per_burst", "total_steps"):
            self._at_least(1, name, int(getattr(self, name)))
        for name in ("staleness_steps", "standalone_capacity", "first_step", "first_version"):
            self._at_least(0, name, int(getattr(self, name)))

    @staticmethod
    def _at_least(least: int, name: str, found: int) -> None:
        if found < least:
            raise UserError(f"{name} of at least {least}", str(found), f"raise {name}")

    @property
    def staleness_bound(self) -> int:
        """Most versions between a group's dispatch and its consumption: ceil(phi / mu) + 1."""
        return -(-self.staleness_steps // self.steps_per_burst) + 1


@dataclass(frozen=True)
class CarriedGroup:
    """A group that was outstanding before a resume."""

    group_id: str
    version_dispatched: int
    ready: bool
    """All members ended and the samples are made."""
    ended: int = 0
    """Members that ended before the resume (all of them when ready)."""


@dataclass(frozen=True)
class Begin:
    """The run starts or resumes, with every cell in rollout. The first event, once."""

    carried: tuple[CarriedGroup, ...] = ()


@dataclass(frozen=True)
class GroupDispatched:
    """A group was made because of a DispatchGroups; its N executions wait or run."""

    group_id: str
    version: int


@dataclass(frozen=True)
class ExecutionStarted:
    """An execution got its place and runs."""

    execution_id: str
    group_id: str


@dataclass(frozen=True)
class ExecutionEnded:
    """A dispatched execution is over, however it ended; exactly once for each, retries included."""

    execution_id: str
    group_id: str


@dataclass(frozen=True)
class GroupReady:
    """All members of the group ended and its samples (perhaps none) are made."""

    group_id: str


@dataclass(frozen=True)
class Switched:
    """A switch that was ordered is done."""

    cell: int
    role: CellRole


@dataclass(frozen=True)
class StepDone:
    """The optimiser stepped on the groups of a closed step."""

    step: int
    computed_s: float = 0.0
    """Cell-seconds that its micro-steps took, idle cells left out; 0 = not measured."""


@dataclass(frozen=True)
class Published:
    """Every engine holds the version."""

    version: int


@dataclass(frozen=True)
class CellLost:
    """The cell's process is gone, with any switch that was under way."""

    cell: int


@dataclass(frozen=True)
class CellReturned:
    """A lost cell was restarted and is in rollout."""

    cell: int


Event = (
    Begin
    | GroupDispatched
    | ExecutionStarted
    | ExecutionEnded
    | GroupReady
    | Switched
    | StepDone
    | Published
    | CellLost
    | CellReturned
)


@dataclass(frozen=True)
class DispatchGroups:
    """Make so many new groups."""

    count: int


@dataclass(frozen=True)
class AdmitGroup:
    """The group's samples belong to this step, the one under way; its micro-steps may be taken."""

    group_id: str
    step: int


@dataclass(frozen=True)
class CloseStep:
    """These B groups are the whole step: step the optimiser when their micro-steps are done."""

    step: int
    groups: tuple[str, ...]


@dataclass(frozen=True)
class SwitchCell:
    """Change the cell's role; its live work goes on elsewhere."""

    cell: int
    to: CellRole


@dataclass(frozen=True)
class PublishWeights:
    """Give the core's weights to every engine under this version."""

    version: int


@dataclass(frozen=True)
class RestartCore:
    """The core is lost: start it again from its last step."""


@dataclass(frozen=True)
class PauseRollout:
    """Hold every model call (colocate only)."""


@dataclass(frozen=True)
class ResumeRollout:
    """Let the held calls go on."""


@dataclass(frozen=True)
class Finish:
    """All steps are done and their weights are published. The last decision."""


Decision = (
    DispatchGroups
    | AdmitGroup
    | CloseStep
    | SwitchCell
    | PublishWeights
    | RestartCore
    | PauseRollout
    | ResumeRollout
    | Finish
)


class Policy(Protocol):
    """Decides about roles and pauses, says where executions may stay, and nothing else: staleness is equal
    under all."""

    evens_out: bool
    """Whether executions may change their cell between two calls, so that all cells serve about as many;
    else an execution stays as long as its cell serves. The owner of the world places them."""

    def arrange(self, state: "State") -> list[Decision]:
        """Order switches and pauses, through the state's own methods, after an event."""
        ...

    def at_rest(self, state: "State") -> bool:
        """Whether the cells are as they shall be when the run is over."""
        ...
