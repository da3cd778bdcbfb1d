"""A cell is crowded from a quarter of its capacity more than elsewhere, two executions at least."""

import pytest

from opengyre.scheduler.crowd import is_crowded


@pytest.mark.parametrize(
    ("executions", "fewest", "capacity", "crowded"),
    [
        (8, 0, 32, True),
        (7, 0, 32, False),
        (32, 24, 32, True),
        (32, 25, 32, False),
        (3, 1, 4, True),
        (2, 1, 4, False),
        (1, 0, 1, False),
        (4, 4, 8, False),
    ],
)
def test_a_crowded_cell(executions: int, fewest: int, capacity: int, *, crowded: bool) -> None:
    assert is_crowded(executions, fewest, capacity) is crowded
