"""Results come in the order of their arguments, as far as they are asked for."""

import math
from contextlib import closing
from itertools import count, islice

import pytest

from opengyre.app.simulate.progress import counted
from opengyre.app.simulate.workers import workers

LONGEST_FIRST = [40_000, 20_000, 3, 2, 1]
"""Factorials of these: the first ones take longest."""


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_in_order(jobs: int) -> None:
    with workers(jobs) as each:
        results = list(each(math.factorial, LONGEST_FIRST))
    assert results[2:] == [6, 2, 1]
    assert results[0] > results[1] > results[2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_endless_row_of_arguments_may_be_left_in_the_middle(jobs: int) -> None:
    with workers(jobs) as each:
        for _ in range(2):
            with closing(each(math.factorial, count())) as results:
                assert list(islice(results, 4)) == [1, 1, 2, 6]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_fails_is_raised_where_its_result_is_asked_for(jobs: int) -> None:
    with workers(jobs) as each, pytest.raises(ValueError, match="many"):
        next(each(int, ["many"]))


def test_each_result_is_counted_as_it_comes_and_stays_as_it_is() -> None:
    said: list[str] = []
    with workers(1) as each:
        results = counted(each, said.append)(math.factorial, (3, 4))
        assert said == []
        assert next(results) == 6
        assert said == ["simulated 1 of 2 …"]
        assert list(results) == [24]
    assert said[-1] == "simulated 2 of 2 …"
