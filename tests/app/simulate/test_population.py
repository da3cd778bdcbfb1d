"""A set moves within its ranges, and a move is as likely as the move back."""

import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.app.simulate.population import Moves, Particle, moves_of, quantile
from opengyre.app.simulate.presets import Assumed, Values

PRIOR = Assumed(
    choices={"cells": [2.0, 3.0, 4.0]}, ranges={"share": (0.0, 1.0), "rate": (5.0, 9.0)}
)


def a_set(cells: float, share: float, rate: float) -> Particle:
    values = {"cells": cells, "share": share, "rate": rate, "known": 16.0}
    return Particle(candidate=1, ancestor=1, distance=1.0, parameters=values)


@given(seed=st.integers(0, 2**32), spread=st.floats(0.0, 20.0))
@settings(max_examples=100, deadline=None)
def test_a_neighbour_stays_within_the_ranges(seed: int, spread: float) -> None:
    draw = random.Random(seed)
    moves = Moves(PRIOR, {"share": spread, "rate": spread})
    values: Values = {"cells": 2.0, "share": draw.random(), "rate": 9.0, "known": 16.0}
    moved = moves.neighbour(values, draw)
    assert moved["cells"] in PRIOR.choices["cells"]
    assert all(low <= moved[name] <= high for name, (low, high) in PRIOR.ranges.items())
    assert moved["known"] == 16.0
    assert values["rate"] == 9.0


def test_moves_reach_as_far_as_the_population() -> None:
    moves = moves_of(PRIOR, [a_set(2.0, 0.2, 5.0), a_set(3.0, 0.2, 9.0)])
    assert moves.spreads == {"share": 0.0, "rate": 2.0}


def test_moved_again_and_again_a_set_is_anywhere_equally_often() -> None:
    """Of a walk that refuses nothing: the flat ranges are what moves keep."""
    moves, draw = Moves(PRIOR, {"share": 0.4, "rate": 0.5}), random.Random(5)
    values: Values = {"cells": 2.0, "share": 0.0, "rate": 5.0}
    seen: list[Values] = []
    for _ in range(20_000):
        values = moves.neighbour(values, draw)
        seen.append(values)
    assert fmean(one["share"] for one in seen) == pytest.approx(0.5, abs=0.03)
    assert fmean(one["share"] < 0.1 for one in seen) == pytest.approx(0.1, abs=0.03)
    assert fmean(one["rate"] for one in seen) == pytest.approx(7.0, abs=0.2)
    assert fmean(one["cells"] == 3.0 for one in seen) == pytest.approx(1 / 3, abs=0.05)


def test_a_quantile_lies_between_its_neighbours() -> None:
    values = [3.0, 1.0, 2.0]
    assert [quantile(values, share) for share in (0.0, 0.25, 0.5, 1.0)] == [1.0, 1.5, 2.0, 3.0]
    assert quantile([4.0], 0.3) == 4.0
