"""The order in which ready groups are chosen, against a list that is searched from the front."""

import random

from hypothesis import given
from hypothesis import strategies as st

from opengyre.scheduler.base import CarriedGroup
from opengyre.scheduler.groups import Groups

versions = st.lists(st.integers(0, 4), min_size=1, max_size=12)


@given(
    versions=versions, orders=st.randoms(use_true_random=False), limits=st.lists(st.integers(-1, 4))
)
def test_the_first_that_was_complete_and_is_old_enough_is_chosen(
    versions: list[int], orders: random.Random, limits: list[int]
) -> None:
    groups = Groups(group_size=1)
    for place, version in enumerate(versions):
        groups.carry(CarriedGroup(f"g{place}", version, ready=False, ended=1), step=0)
    waiting = list(range(len(versions)))
    orders.shuffle(waiting)
    plain: list[int] = []
    for newest in limits:
        if waiting:
            plain.append(waiting.pop())
            groups.complete(f"g{plain[-1]}")
        allowed = [place for place in plain if versions[place] <= newest]
        assert groups.choose(newest) is bool(allowed)
        if allowed:
            plain.remove(allowed[0])
            assert groups.chosen[-1] == f"g{allowed[0]}"
        assert groups.ready == [f"g{place}" for place in plain]
        assert groups.any_ready is bool(plain)
        groups.check()


def test_a_report_answers_the_oldest_order() -> None:
    """An order counts under the version that it was given at, until its group is there."""
    groups = Groups(group_size=1)
    groups.order(0, 1)
    groups.order(1, 1)
    groups.dispatched("a", 1, step=0)
    assert groups.waiting == {1: 2}
    groups.dispatched("b", 2, step=0)
    assert groups.waiting == {1: 1, 2: 1}
    groups.check()
