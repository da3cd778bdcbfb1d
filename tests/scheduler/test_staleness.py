"""The staleness bound: kept by construction, reached, and equal under every policy."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.scheduler.base import (
    AdmitGroup,
    Begin,
    Event,
    ExecutionEnded,
    GroupDispatched,
    GroupReady,
    Published,
    SchedulePlan,
    StepDone,
)
from opengyre.scheduler.factory import make_scheduler
from opengyre.scheduler.staleness import Slots, Spread, Staleness, holds, newest_allowed, summarise
from tests.scheduler.strategies import POLICIES
from tests.scheduler.world import World


@pytest.mark.parametrize(
    ("mu", "phi", "bound"),
    [(1, 0, 1), (1, 1, 2), (1, 4, 5), (2, 0, 1), (2, 1, 2), (2, 2, 2), (2, 3, 3), (4, 1, 2)],
)
def test_the_bound_is_the_budget_in_begun_bursts_and_one_more(
    mu: int, phi: int, bound: int
) -> None:
    plan = SchedulePlan(
        cells=(1,),
        group_size=1,
        groups_per_step=1,
        steps_per_burst=mu,
        staleness_steps=phi,
        total_steps=1,
    )
    assert plan.staleness_bound == bound


@given(mu=st.integers(1, 3), phi=st.integers(0, 4), b=st.integers(1, 2), roomy=st.booleans())
@settings(max_examples=25, deadline=None)
def test_when_old_groups_hang_every_policy_waits_for_them_at_the_bound(
    mu: int, phi: int, b: int, roomy: bool
) -> None:
    plan = SchedulePlan(
        cells=(2, 2),
        standalone_capacity=200 if roomy else 0,
        group_size=2,
        groups_per_step=b,
        steps_per_burst=mu,
        staleness_steps=phi,
        total_steps=6 * mu + 1,
    )
    summaries = []
    for policy in POLICIES:
        world = World(plan, policy)
        world.drain_newest_first()
        summaries.append(world.scheduler.state.staleness_summary())
    assert all(one.versions.max <= plan.staleness_bound for one in summaries)
    assert not phi or not roomy or summaries[0].versions.max == plan.staleness_bound
    if roomy:
        assert summaries[0] == summaries[1] == summaries[2]


SLOTS = [
    Slots(now, per_burst, now + later)
    for now, per_burst, later in product((1, 2, 3), (1, 2), range(5))
]


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_a_group_may_be_taken_exactly_if_every_other_one_then_keeps_the_bound(bound: int) -> None:
    """All that can wait: up to two groups of each age."""
    checked = 0
    for counts, slots in product(product(range(3), repeat=bound + 1), SLOTS):
        waiting = Counter({5 - age: count for age, count in enumerate(counts) if count})
        if not holds(waiting, 5, bound, slots):
            continue
        after = Slots(slots.now - 1, slots.per_burst, slots.total - 1)
        newest = newest_allowed(waiting, 5, bound, slots)
        for version in waiting:
            rest = waiting - Counter([version])
            assert (version <= newest) is holds(rest, 5, bound, after)
            checked += 1
    assert checked > 100


def test_a_group_that_is_not_allowed_would_break_the_bound() -> None:
    slots = Slots(now=2, per_burst=2, total=10)
    waiting = Counter([3, 3, 5])
    assert newest_allowed(waiting, 5, 2, slots) == 3
    assert not holds(Counter([3, 3]), 5, 2, Slots(now=1, per_burst=2, total=9))


def test_within_the_bound_groups_are_taken_in_the_order_in_which_they_became_ready() -> None:
    """While x is trained, c of a newer version becomes ready before b: c comes next, b after it."""
    plan = SchedulePlan(
        cells=(2, 2),
        group_size=1,
        groups_per_step=1,
        steps_per_burst=1,
        staleness_steps=2,
        total_steps=5,
    )
    scheduler = make_scheduler(plan, "async")

    def tell(*events: Event) -> list[str]:
        decisions = [one for event in events for one in scheduler.decide(event, 0.0)]
        return [one.group_id for one in decisions if isinstance(one, AdmitGroup)]

    def ready(name: str) -> list[str]:
        return tell(ExecutionEnded(f"{name}0", name), GroupReady(name))

    tell(Begin(), *(GroupDispatched(name, 0) for name in "abx"))
    assert ready("a") == ["a"]
    assert tell(StepDone(0), Published(1), GroupDispatched("c", 1)) == []
    assert ready("x") == ["x"]
    assert ready("c") == []
    assert ready("b") == []
    assert tell(StepDone(1), Published(2)) == ["c"]
    assert tell(StepDone(2), Published(3)) == ["b"]


def test_a_group_is_as_old_as_the_version_that_it_was_made_under_whenever_that_is_reported() -> (
    None
):
    plan = SchedulePlan(
        cells=(1, 1),
        group_size=1,
        groups_per_step=1,
        steps_per_burst=1,
        staleness_steps=1,
        total_steps=2,
    )
    scheduler = make_scheduler(plan, "async")
    events: list[Event] = [
        Begin(),
        GroupDispatched("a", 0),
        ExecutionEnded("a0", "a"),
        GroupReady("a"),
        StepDone(0),
        Published(1),
        GroupDispatched("b", 0),
        ExecutionEnded("b0", "b"),
        GroupReady("b"),
        StepDone(1),
    ]
    for event in events:
        scheduler.decide(event, 0.0)
        scheduler.state.check()
    assert scheduler.state.staleness_seen == [Staleness(0, 0), Staleness(versions=1, steps=1)]


def test_the_summary_has_mean_nearest_rank_p95_and_maximum() -> None:
    seen = [Staleness(versions=i % 2, steps=i) for i in range(1, 21)]
    summary = summarise(seen)
    assert summary.groups == 20
    assert summary.versions == Spread(0.5, 1, 1)
    assert summary.steps == Spread(10.5, 19, 20)


@pytest.mark.parametrize(
    ("groups", "p95"), [(1, 1), (2, 2), (10, 10), (20, 19), (21, 20), (100, 95), (101, 96)]
)
def test_the_p95_is_the_least_that_at_least_95_of_100_do_not_exceed(groups: int, p95: int) -> None:
    summary = summarise([Staleness(versions=0, steps=i) for i in range(groups, 0, -1)])
    assert summary.steps == Spread((groups + 1) / 2, p95, groups)


def test_the_summary_of_nothing_is_zero() -> None:
    assert summarise([]).steps == Spread(0.0, 0, 0)
