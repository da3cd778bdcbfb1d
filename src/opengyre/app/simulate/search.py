"""The search for sets that fit: approximate Bayesian computation by sequential Monte Carlo.

Invariant: what becomes of a place in the population follows from the seed, the generation, and the
population that it began with; so a search that was stopped and goes on, on however many processes, ends
with the same file.

The first generation is drawn blindly from the ranges of the calibrated preset. From one to the next the
tolerance falls to the median distance; places beyond it are given to copies of sets within, which then try
some moves, and make those that leave them within the tolerance (Drovandi and Pettitt 2011). Once the
tolerance is the published span itself, each set is run again on other executions, and those that fit
then too are accepted; from then on every set moves, and is run again if it did.
"""

import math
import random
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from statistics import median

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from opengyre.app.simulate.ensemble import Ensemble, Fitted, Generation, Search
from opengyre.app.simulate.fitting import confirmed, near
from opengyre.app.simulate.population import Particle, moves_of
from opengyre.app.simulate.presets import CALIBRATED, load_preset
from opengyre.app.simulate.workers import Each
from opengyre.core.errors import UserError

POPULATION = 64
"""Places: enough that several blindly drawn sets have descendants in the end."""
WANTED = 24
"""Accepted sets of a search."""
TARGET = 1.0
"""The tolerance of the last generations: the published spans."""
FIRST_MOVES, MOST_MOVES = 3, 9
"""That a copy tries in a generation: as many as the last generation's luck asks for, within these."""
STAY = 0.1
"""Share of the copies that may then stay where they were copied from."""
DRAWS = 90
"""That a place of the first generation has to find a set with the published durations; four of five have
them."""
PLACE_NUMBERS, GENERATION_NUMBERS = 100, 10_000
"""Candidates of a place, and of a generation, are numbered from a multiple of these on; none comes up to
the seeds of `paper`."""
MOST_GENERATIONS = 40
"""Beyond, the row is out of reach: a tolerance that can be reached is, within a dozen."""


class Place(Struct, frozen=True, kw_only=True):
    """A place of a generation, to be worked on. Made by the search; read by a worker."""

    seed: int
    generation: int
    number: int
    tolerance: float | None
    moves: int
    """That it tries: a copy is to go elsewhere; 0 for a set that stays."""
    population: tuple[Particle, ...]


class Moved(Struct, frozen=True, kw_only=True):
    """What came of it. Made by a worker; read by the search."""

    particle: Particle
    tried: int
    """Candidates."""
    fitted: Fitted | None = None


def begin(seed: int, population: int = POPULATION) -> Ensemble:
    """A search that has tried nothing."""
    assert population * PLACE_NUMBERS <= GENERATION_NUMBERS, "numbers are for one candidate each"
    search = Search(priors=priors_digest(), population=population)
    return Ensemble(seed=seed, candidates=0, accepted=(), search=search)


def priors_digest() -> str:
    """Of the calibrated preset: all that the search draws from and aims at."""
    preset = msgspec.json.encode(load_preset(CALIBRATED), order="deterministic")
    return sha256(preset).hexdigest()


def go_on(state: Ensemble, wanted: int, each: Each) -> Iterator[Ensemble]:
    """Work on places until so many sets are accepted or the search is stuck; the state after each."""
    while not (enough(state, wanted) or stuck(state)):
        generation = len(search_of(state).generations)
        with closing(each(work, _places(state))) as results:
            for moved in results:
                state = advance(state, moved)
                yield state
                if enough(state, wanted):
                    return
        assert len(search_of(state).generations) == generation + 1, "all its places are done"


def work(place: Place) -> Moved:
    """Draw a set, or move one."""
    draw = random.Random(f"{place.seed}/{place.generation}/{place.number}")
    first = place.generation * GENERATION_NUMBERS + place.number * PLACE_NUMBERS
    return _drawn(first, draw) if place.tolerance is None else _moved(place, first, draw)


def _drawn(first: int, draw: random.Random) -> Moved:
    """The first blind draw that can have the published durations."""
    preset = load_preset(CALIBRATED)
    for number in range(first, first + DRAWS):
        found = near(preset.known_numbers | preset.assumed.draw(draw), preset, number, math.inf)
        if found is not None:
            values, distance = found
            particle = Particle(
                candidate=number, ancestor=number, distance=distance, parameters=values
            )
            return Moved(particle=particle, tried=number - first + 1)
    wanted = f"a set of the ranges of {CALIBRATED} that can have its durations"
    raise UserError(wanted, f"none of {DRAWS}", "widen the ranges")


def _moved(place: Place, first: int, draw: random.Random) -> Moved:
    """The place's set after its moves; run again if the tolerance is the target and it is new there."""
    assert place.tolerance is not None, "the first generation does not move"
    preset, particle = load_preset(CALIBRATED), place.population[place.number]
    moves = moves_of(preset.assumed, place.population)
    for number in range(first, first + place.moves):
        neighbour = moves.neighbour(particle.parameters, draw)
        found = near(neighbour, preset, number, place.tolerance)
        if found is not None:
            values, distance = found
            particle = replace(particle, candidate=number, distance=distance, parameters=values)
    new = particle.candidate >= first or not place.moves
    fitted = confirmed(particle, preset) if place.tolerance == TARGET and new else None
    return Moved(particle=particle, tried=place.moves, fitted=fitted)


def advance(state: Ensemble, moved: Moved) -> Ensemble:
    """The state after one more place."""
    search, accepted = search_of(state), state.accepted
    search = replace(search, tried=search.tried + moved.tried, done=(*search.done, moved.particle))
    known = {one.candidate for one in accepted}
    if moved.fitted is not None and moved.fitted.candidate not in known:  # a copy may stand still
        accepted = (*accepted, moved.fitted)
    if len(search.done) == search.population:
        search = _next(search, state.seed)
    candidates = state.candidates + moved.tried
    return replace(state, candidates=candidates, accepted=accepted, search=search)


def enough(state: Ensemble, wanted: int) -> bool:
    """Whether so many sets are accepted."""
    return len(state.accepted) >= wanted


def stuck(state: Ensemble) -> bool:
    """Whether going on makes no sense."""
    return len(search_of(state).generations) >= MOST_GENERATIONS


def search_of(state: Ensemble) -> Search:
    """Of an ensemble that came of one."""
    assert state.search is not None, "a search begins with its state"
    return state.search


def summed_up(search: Search) -> Generation:
    """The generation under way."""
    first = len(search.generations) * GENERATION_NUMBERS
    return Generation(
        number=len(search.generations),
        tolerance=search.tolerance,
        tried=search.tried,
        places=len(search.done),
        moved=sum(one.candidate >= first for one in search.done),
        ancestors=len({one.ancestor for one in search.done}),
    )


def _next(search: Search, seed: int) -> Search:
    """The generation under way is over: its nearer half, and copies of it, begin the next."""
    generations = (*search.generations, summed_up(search))
    tolerance = max(TARGET, median(one.distance for one in search.done))
    within = [one for one in search.done if one.distance <= tolerance]
    again, tries = search.tolerance == TARGET, _tries(search, generations[-1])
    copied = random.Random(f"{seed}/{len(generations)}").sample(within, len(within))
    copies = iter(copied)
    return replace(
        search,
        generations=generations,
        tolerance=tolerance,
        moves=tuple(tries * (again or one.distance > tolerance) for one in search.done),
        begun=tuple(one if one.distance <= tolerance else next(copies) for one in search.done),
        tried=0,
        done=(),
    )


def _tries(search: Search, done: Generation) -> int:
    """Moves after which all but STAY would have succeeded once, going by the generation just done."""
    copies = [count for count in search.moves if count]
    if not copies or done.moved == len(copies):
        return FIRST_MOVES
    if not done.moved:
        return MOST_MOVES
    fail = (1.0 - done.moved / len(copies)) ** (1.0 / max(copies))
    return min(MOST_MOVES, max(FIRST_MOVES, math.ceil(math.log(STAY) / math.log(fail))))


def _places(state: Ensemble) -> Iterator[Place]:
    """Of the generation under way that nothing has come of yet."""
    search = search_of(state)
    for number in range(len(search.done), search.population):
        yield Place(
            seed=state.seed,
            generation=len(search.generations),
            number=number,
            tolerance=search.tolerance,
            moves=search.moves[number] if search.moves else 0,
            population=search.begun,
        )
