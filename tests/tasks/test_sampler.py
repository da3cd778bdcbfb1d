"""Group i's task follows from the seed and i; each pass has every task once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.errors import UserError
from opengyre.tasks.base import Task
from opengyre.tasks.sampler import TaskCycle


def tasks(count: int) -> list[Task]:
    return [
        Task(task_id=f"t{n:02}", folder=Path(), instruction="", workdir="/app")
        for n in range(count)
    ]


@given(count=st.integers(1, 9), seed=st.integers(0, 99), data=st.data())
def test_every_pass_is_a_permutation_in_whatever_order_it_is_asked(
    count: int, seed: int, data: st.DataObject
) -> None:
    cycle = TaskCycle(tasks(count), seed)
    forward = [cycle.next_task(index).task_id for index in range(3 * count)]
    for start in range(0, 3 * count, count):
        assert len(set(forward[start : start + count])) == count
    again = TaskCycle(list(reversed(tasks(count))), seed)
    for index in data.draw(st.permutations(range(3 * count))):
        assert again.next_task(index).task_id == forward[index]


def test_no_tasks_are_refused() -> None:
    with pytest.raises(UserError):
        TaskCycle([], 0)
