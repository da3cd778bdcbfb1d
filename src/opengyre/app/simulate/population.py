"""A population of parameter sets, and how a set moves.

Invariant: a move is as likely as the move back, so among all sets within a tolerance none is preferred: with
flat ranges, accepting each proposal within the tolerance keeps a population a sample of the ranges cut
down to that tolerance (Marjoram et al. 2003). Hence no set needs a weight.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import pstdev

from msgspec import Struct

from opengyre.app.simulate.presets import Assumed, Values

OTHER_CHOICE = 0.15
"""How often a choice, such as the number of cells, is drawn anew."""
MOVED = 0.4
"""How often a parameter moves: some at a time, for a move of all seldom ends within the tolerance."""
REACHES = (0.3, 1.0)
"""Of a move, in deviations of the population: near and far moves, half and half."""


class Particle(Struct, frozen=True, kw_only=True):
    """A set of a generation. Made by the search; read by the search when it goes on."""

    candidate: int
    """Its number among all candidates of the search."""
    ancestor: int
    """Number of the blindly drawn set that it goes back to."""
    distance: float
    """From the published row; 1 is the edge of the published spans."""
    parameters: Values


@dataclass(frozen=True)
class Moves:
    """From a set to a neighbour within the ranges."""

    prior: Assumed
    spreads: Values
    """Deviation of each range's parameter in the population."""

    def neighbour(self, values: Values, draw: random.Random) -> Values:
        """Some parameters moved."""
        moved, reach = dict(values), draw.choice(REACHES)
        for name, among in self.prior.choices.items():
            if draw.random() < OTHER_CHOICE:
                moved[name] = draw.choice(among)
        for name, (low, high) in self.prior.ranges.items():
            if draw.random() < MOVED:
                step = draw.gauss(0.0, reach * self.spreads[name])
                moved[name] = _reflected(low, high, values[name] + step)
        return moved


def moves_of(prior: Assumed, population: Sequence[Particle]) -> Moves:
    """As far as the population's sets lie apart."""
    return Moves(
        prior,
        {name: pstdev(one.parameters[name] for one in population) for name in prior.ranges},
    )


def _reflected(low: float, high: float, value: float) -> float:
    """A way beyond an end of the range is a way back from it."""
    width = high - low
    beyond = math.fmod(abs(value - low), 2.0 * width)
    return low + min(beyond, 2.0 * width - beyond)


def quantile(values: Sequence[float], share: float) -> float:
    """The value with that share of the others below it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = ordered[math.floor(place)]
    return low + (ordered[math.ceil(place)] - low) * (place % 1.0)
