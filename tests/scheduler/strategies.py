"""Shared Hypothesis strategies: plans small enough that every boundary is met often."""

from hypothesis import strategies as st

from opengyre.config.run import PolicyName
from opengyre.scheduler.base import SchedulePlan

POLICIES: tuple[PolicyName, ...] = ("elastic", "forecast", "colocate", "async")


@st.composite
def plans(draw: st.DrawFn) -> SchedulePlan:
    """Any plan that all policies accept."""
    cells = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    mu = draw(st.integers(1, 3))
    return SchedulePlan(
        cells=cells,
        standalone_capacity=draw(st.sampled_from([0, 0, 0, 1, 3])),
        group_size=draw(st.integers(1, 3)),
        groups_per_step=draw(st.integers(1, 3)),
        steps_per_burst=mu,
        staleness_steps=draw(st.integers(0, 4)),
        total_steps=draw(st.integers(1, 7)),
        training_cells=draw(st.integers(1, len(cells) - 1)),
    )
