"""Small worlds for tests."""

import math

import msgspec
from hypothesis import strategies as st

from opengyre.scheduler.base import SchedulePlan
from opengyre.sim.workload import Machine, Workload

PLAIN_LOAD = Workload(
    calls=1.0,
    answer_tokens=100.0,
    observation_tokens=0.0,
    first_prompt_tokens=0.0,
    tool_s=0.0,
)
"""One call an execution, all alike."""
PLAIN_MACHINE = Machine(
    decode_alone_tokens_s=10.0, decode_full_tokens_s=math.inf, train_tokens_s=math.inf
)
"""Calls do not slow one another down; nothing but decoding takes time."""


def load(**changes: float) -> Workload:
    return msgspec.structs.replace(PLAIN_LOAD, **changes)


def machine(**changes: float) -> Machine:
    return msgspec.structs.replace(PLAIN_MACHINE, **changes)


def plan(**changes: object) -> SchedulePlan:
    settings: dict[str, object] = {
        "cells": (4, 4),
        "group_size": 2,
        "groups_per_step": 1,
        "steps_per_burst": 1,
        "staleness_steps": 0,
        "total_steps": 1,
        **changes,
    }
    return SchedulePlan(**settings)  # type: ignore[arg-type]


def plans(standalone: list[int]) -> st.SearchStrategy[SchedulePlan]:
    """Few and many cells, long and short bursts, with and without a staleness budget."""
    return st.builds(
        plan,
        cells=st.sampled_from([(2, 2), (8, 8, 8), (3, 3, 3, 3, 3)]),
        group_size=st.just(3),
        groups_per_step=st.just(2),
        steps_per_burst=st.sampled_from([1, 3]),
        staleness_steps=st.sampled_from([0, 1, 4]),
        total_steps=st.just(4),
        standalone_capacity=st.sampled_from(standalone),
    )
