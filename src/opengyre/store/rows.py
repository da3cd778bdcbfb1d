"""Rows of the durable record. Each is written once, except a group, whose state only goes forward."""

import enum

from msgspec import Struct


class GroupState(enum.StrEnum):
    """Where a group stands."""

    OUTSTANDING = "outstanding"
    """Dispatched; some member has no verdict yet."""
    READY = "ready"
    """Every member has its verdict; not consumed."""
    CONSUMED = "consumed"
    """Taken by an optimiser step that was made durable."""


class GroupRow(Struct, frozen=True, kw_only=True):
    """One group. Made by app; read by app on resume, and by report."""

    group_id: str
    index: int
    """Order of dispatch in the run, from 0."""
    task_id: str
    version_dispatched: int
    state: GroupState
    step: int | None = None
    """Step that consumed it."""
    dispatched_at: float | None = None
    """Seconds of the run's clock; None in stores of older versions."""


class StepRow(Struct, frozen=True, kw_only=True):
    """One optimiser step. Made by app; read by app on resume, and by report."""

    step: int
    version: int
    """Weight version that the step started from."""
    at: float
    """Seconds of the run's clock at its end."""
    executions: int
    groups: list[str]
    reward_mean: float
    pass_rate: float
    metrics: dict[str, float]
    """What learner and scheduler measured: loss, gradient norm, clip share, tokens, staleness."""


class EndRow(Struct, frozen=True, kw_only=True):
    """How a recorded execution was ended. Made by app; read by app after a restart."""

    execution_id: str
    said: str
    """JSON of what was said by the one who ended it: the same again gets the same answer."""
    report: str
    """JSON of what its calls came to."""


class LifeRow(Struct, frozen=True, kw_only=True):
    """A process that wrote to the store. Made by app; read by app when it goes on, and by simulate.

    No time of a later one's is before the last of an earlier one's.
    """

    began: float
    """Where its clock goes on: the last time that was recorded before it."""
    alive: float
    """The last time that it recorded: of calls, executions, steps and events."""


class EventRow(Struct, frozen=True, kw_only=True):
    """Something that the report draws: a role, a waterlevel, a publication, an evaluation."""

    at: float
    kind: str
    fields: dict[str, str | float]
