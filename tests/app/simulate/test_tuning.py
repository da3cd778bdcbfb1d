"""A plan is changed for one that is faster beyond chance and whose data are no older, or not at all."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields
from tests.app.simulate.test_figures import LOAD, MACHINE, SCENE

from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.contest import (
    KEPT,
    MOVING,
    POLICIES,
    SLACK,
    Candidate,
    Measure,
    Trial,
    candidate_of,
    candidates,
    measure,
    rate,
    sieve,
    staleness_of,
)
from opengyre.app.simulate.tuning import PILOTS, TRIALS, chosen, tuned
from opengyre.config.run import PolicyName

LONG_TAIL = Scene(
    replace(SCENE.plan, cells=(8, 8, 8), group_size=4, staleness_steps=1, total_steps=8),
    with_fields(LOAD, calls=8.0, member_spread=0.9),
    with_fields(MACHINE, train_tokens_s=30.0),
)


def seed_of(turn: int) -> int:
    return 100 + turn


def measures(candidate: Candidate) -> st.SearchStrategy[Measure]:
    rates = st.lists(st.floats(0.5, 2.0), min_size=4, max_size=4).map(tuple)
    ages = st.tuples(st.floats(0.0, 4.0), st.integers(0, 6))
    return st.builds(
        lambda rates, age: Measure(candidate, rates, 0.0, 0.0, *age), rates=rates, age=ages
    )


OWN, OTHER = Candidate("elastic", 1, 0, 2), Candidate("forecast", 2, 0, 2)


@given(own=measures(OWN), others=st.lists(measures(OTHER), max_size=4))
def test_what_is_chosen_is_faster_beyond_chance_and_no_older(
    own: Measure, others: list[Measure]
) -> None:
    best = chosen(own, others)
    if best is own:
        assert all(one.surely_over(own) <= 1.0 or not one.no_older_than(own) for one in others)
    else:
        assert best.over(own)[0] > 1.0
        assert best.staleness <= own.staleness * (1 + SLACK)
        assert best.staleness_p95 <= own.staleness_p95


@given(own=measures(OWN))
def test_a_plan_that_does_as_well_is_not_chosen(own: Measure) -> None:
    assert chosen(own, [replace(own, candidate=OTHER)]) is own


def test_a_gain_that_one_trial_alone_has_does_not_stand_out() -> None:
    own = Measure(OWN, (1.0, 1.0, 1.0, 1.0), 0.0, 0.0, 0.0, 0)
    lucky = replace(own, candidate=OTHER, rates=(1.4, 1.0, 0.99, 1.0))
    steady = replace(own, candidate=OTHER, rates=(1.04, 1.03, 1.05, 1.04))
    assert lucky.over(own)[0] > steady.over(own)[0]
    assert chosen(own, [lucky]) is own
    assert chosen(own, [lucky, steady]) is steady


@pytest.mark.parametrize("policies", [("elastic",), MOVING, POLICIES])
def test_no_tuning_makes_data_older(policies: tuple[PolicyName, ...]) -> None:
    own = candidate_of("elastic", LONG_TAIL.plan)
    found = tuned(LONG_TAIL, own, policies, seed_of)
    assert found == tuned(LONG_TAIL, own, policies, seed_of), "the same again"
    assert found.policy in policies
    seeds = range(PILOTS, PILOTS + TRIALS)
    trials = [Trial(LONG_TAIL, seed_of(turn), LONG_TAIL.plan.total_steps) for turn in seeds]
    assert measure(found, trials).no_older_than(measure(own, trials))
    if policies == POLICIES:
        assert measure(found, trials).mean > measure(own, trials).mean, "there is something to gain"


def test_where_all_policies_are_one_the_own_plan_stays() -> None:
    """With a single cell none has a choice; and data may not age."""
    plan = replace(SCENE.plan, cells=(8,), steps_per_burst=1, total_steps=4)
    scene = Scene(plan, LOAD, MACHINE)
    own = candidate_of("elastic", plan)
    assert tuned(scene, own, MOVING, seed_of) == own


def test_a_sieve_begins_with_the_fastest_of_those_that_keep_the_limit() -> None:
    size = candidate_of("elastic", SCENE.plan)
    every = list(candidates(size, 2, 3))
    trials = [Trial(SCENE, seed, 4) for seed in (1, 2)]

    def fresh(_: Trial, result: object) -> bool:
        return staleness_of(result)[1] <= 2  # type: ignore[arg-type]

    ordered = sieve(every, trials, fresh)
    kept = [one for one in every if all(fresh(t, t.of(one)) for t in trials)]
    first = sorted(kept, key=lambda one: -rate(trials[0].of(one)))
    assert set(ordered[: KEPT[0]]) <= set(kept)
    assert set(ordered) <= set(every)
    assert len(ordered) == len(set(ordered))
    assert ordered[0] in first[: KEPT[0]]
    both = [math.prod(rate(t.of(one)) for t in trials) for one in ordered[: KEPT[0]]]
    assert both == sorted(both, reverse=True)
