"""A search ends with the same sets however often it is stopped and on however many processes."""

import random
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from statistics import fmean
from typing import TypeVar, cast

import msgspec
import pytest
from msgspec.structs import replace

from opengyre.app.simulate.ensemble import Ensemble, Fitted, Generation
from opengyre.app.simulate.population import Particle, moves_of
from opengyre.app.simulate.presets import CALIBRATED, Assumed, load_preset
from opengyre.app.simulate.search import (
    MOST_GENERATIONS,
    TARGET,
    Moved,
    Place,
    begin,
    go_on,
    search_of,
    stuck,
    summed_up,
    work,
)
from opengyre.app.simulate.workers import Each

A = TypeVar("A")
R = TypeVar("R")
LINE = Assumed(ranges={"x": (0.0, 1.0)})
FITS = 0.25
"""Where the toy's row lies."""
SCALE = 20.0
"""Of the toy's distance: sets within 0.05 of it fit."""


def toy_work(place: Place) -> Moved:
    """As the true one, in a world of one parameter whose distance is known."""
    draw = random.Random(f"{place.seed}/{place.generation}/{place.number}")
    number = place.generation * 1000 + place.number
    if place.tolerance is None:
        return Moved(particle=a_particle(number, number, LINE.draw(draw)["x"]), tried=1)
    particle, moves = place.population[place.number], moves_of(LINE, place.population)
    for _ in range(place.moves):
        x = moves.neighbour(particle.parameters, draw)["x"]
        other = a_particle(number, particle.ancestor, x)
        particle = other if other.distance <= place.tolerance else particle
    fitted = None
    if place.tolerance == TARGET and (particle.candidate == number or not place.moves):
        fitted = a_fitted(particle)
    return Moved(particle=particle, tried=place.moves, fitted=fitted)


def a_particle(number: int, ancestor: int, x: float) -> Particle:
    distance = abs(x - FITS) * SCALE
    return Particle(candidate=number, ancestor=ancestor, distance=distance, parameters={"x": x})


def a_fitted(particle: Particle) -> Fitted:
    return Fitted(
        candidate=particle.candidate,
        ancestor=particle.ancestor,
        execution_h=1.93,
        slowest_h=2.96,
        speedups={},
        parameters=particle.parameters,
    )


def toy(function: Callable[[A], R], arguments: Iterable[A]) -> Generator[R, None, None]:
    """Puts the toy in the place of the true work."""
    return (cast("R", toy_work(cast("Place", one))) for one in arguments)


def hopeless(function: Callable[[A], R], arguments: Iterable[A]) -> Generator[R, None, None]:
    """A world whose row nothing comes near."""
    for place in arguments:
        moved = toy_work(cast("Place", place))
        yield cast("R", replace(moved, particle=replace(moved.particle, distance=9.0), fitted=None))


def searched(state: Ensemble, wanted: int = 20, each: Each = toy) -> list[Ensemble]:
    return list(go_on(state, wanted, each))


def generations(state: Ensemble) -> list[Generation]:
    return [*search_of(state).generations, summed_up(search_of(state))]


def test_tolerances_fall_to_the_target_and_what_is_accepted_lies_within() -> None:
    states = searched(begin(0, population=16))
    end = states[-1]
    tolerances = [one.tolerance for one in generations(end)]
    assert tolerances[0] is None
    falling = [one for one in tolerances if one is not None]
    assert falling == sorted(falling, reverse=True)
    assert falling[-1] == TARGET
    assert len(end.accepted) == 20
    assert all(abs(one.parameters["x"] - FITS) * SCALE <= TARGET for one in end.accepted)
    assert end.candidates == sum(one.tried for one in generations(end))
    assert len({one.candidate for one in end.accepted}) == 20


def test_every_set_lies_within_the_tolerance_of_its_generation() -> None:
    for state in searched(begin(2, population=16)):
        search = search_of(state)
        assert len(search.done) < search.population
        if search.tolerance is not None:
            assert all(one.distance <= search.tolerance for one in (*search.begun, *search.done))
            assert len(search.begun) == search.population


def test_every_set_goes_back_to_one_that_was_drawn_blindly() -> None:
    end = searched(begin(3, population=16))[-1]
    families = {one.ancestor for one in end.accepted}
    assert families <= set(range(16))
    assert len(families) > 1
    assert generations(end)[0].ancestors == 16


@pytest.mark.parametrize("stop", [1, 15, 16, 17, 60])
def test_a_search_that_was_stopped_ends_with_the_same_file(stop: int) -> None:
    whole = searched(begin(1, population=16))[-1]
    stopped = list(islice(go_on(begin(1, population=16), 20, toy), stop))[-1]
    stored = msgspec.json.decode(msgspec.json.encode(stopped), type=Ensemble)
    assert searched(stored)[-1] == whole


def test_more_sets_are_the_same_ones_and_more() -> None:
    few = searched(begin(1, population=16), wanted=5)[-1]
    assert searched(few, wanted=30)[-1] == searched(begin(1, population=16), wanted=30)[-1]
    assert searched(few, wanted=5) == []


def test_another_seed_is_another_search() -> None:
    one, other = (searched(begin(seed, population=16))[-1].accepted for seed in (0, 1))
    assert one[0].parameters != other[0].parameters


def test_what_is_accepted_is_spread_evenly_over_all_that_fits() -> None:
    found = [one.parameters["x"] for one in searched(begin(0, population=60), 1500)[-1].accepted]
    assert fmean(found) == pytest.approx(FITS, abs=0.003)
    assert fmean(x < FITS - 0.025 for x in found) == pytest.approx(0.25, abs=0.05)


def test_a_row_out_of_reach_ends_the_search() -> None:
    end = searched(begin(0, population=4), 9, hopeless)[-1]
    assert stuck(end)
    assert len(search_of(end).generations) == MOST_GENERATIONS
    assert not end.accepted


def test_a_true_candidate_has_the_published_durations_and_then_moves() -> None:
    known = load_preset(CALIBRATED).known_numbers
    first = work(Place(seed=0, generation=0, number=31, tolerance=None, moves=0, population=()))
    particle = first.particle
    assert particle.ancestor == particle.candidate == 3100 + first.tried - 1
    assert {name: particle.parameters[name] for name in known} == known
    place = Place(seed=0, generation=1, number=0, tolerance=9e9, moves=1, population=(particle,))
    moved = work(place)
    assert moved.particle.ancestor == particle.ancestor
    assert moved.particle.candidate >= 10_000
    assert moved.fitted is None
