"""Parameter sets that fit the calibrated row: few numbers cannot pin many parameters, so all that fit count.

Invariant: a set is in the ensemble by the calibrated row alone. Which of them are used when not all
are follows from the file, not from what they give.
"""

from collections import defaultdict
from importlib.resources import files
from itertools import chain, zip_longest
from pathlib import Path

import msgspec
from msgspec import Struct

from opengyre.app.simulate.build import HOUR_S
from opengyre.app.simulate.population import Particle
from opengyre.app.simulate.presets import Values
from opengyre.core.errors import UserError
from opengyre.sim.outcome import Outcome

ACCEPTED_FILE = "accepted.json"


class Fitted(Struct, frozen=True, kw_only=True):
    """An accepted set. Made by calibrate; read by everything that predicts."""

    candidate: int
    """Its number among the candidates of its seed."""
    ancestor: int = 0
    """Number of the blindly drawn set that it goes back to."""
    execution_h: float
    slowest_h: float
    speedups: dict[str, float]
    """Over each baseline, with the seed it was accepted on."""
    parameters: Values


class Generation(Struct, frozen=True, kw_only=True):
    """What came of one generation of the search."""

    number: int
    """0 is the first."""
    tolerance: float | None
    """Distance from the published row, up to which sets moved; None for the first, drawn blindly."""
    tried: int
    """Candidates."""
    places: int
    """That were worked on."""
    moved: int
    """Sets that ended elsewhere than they began."""
    ancestors: int
    """Blindly drawn sets that all go back to."""


class Search(Struct, frozen=True, kw_only=True):
    """How far a search is. Made by the search; read by the search when it goes on."""

    priors: str
    """Digest of what is drawn from: with other ranges it is another search."""
    population: int
    generations: tuple[Generation, ...] = ()
    """That are over."""
    begun: tuple[Particle, ...] = ()
    """What the generation under way began with; nothing before the first."""
    moves: tuple[int, ...] = ()
    """That each of them tries: none, unless it is a copy."""
    tolerance: float | None = None
    tried: int = 0
    done: tuple[Particle, ...] = ()
    """Its places that were worked on, in order."""


class Ensemble(Struct, frozen=True, kw_only=True):
    """The file of accepted sets."""

    seed: int
    candidates: int
    """That were tried."""
    accepted: tuple[Fitted, ...]
    search: Search | None = None

    def spread_out(self, count: int) -> tuple[Fitted, ...]:
        """So many of the sets, from as many ancestors as can be: one of each in turn, in the order in
        which they were found."""
        families: dict[int, list[Fitted]] = defaultdict(list)
        for fitted in self.accepted:
            families[fitted.ancestor].append(fitted)
        in_turn = chain.from_iterable(zip_longest(*families.values()))
        chosen = [fitted for fitted in in_turn if fitted is not None][:count]
        if not chosen:
            raise UserError("at least one accepted set", "none", "run: opengyre simulate calibrate")
        return tuple(chosen)


def bundled_ensemble() -> Ensemble:
    """The sets that come with the package."""
    path = files("opengyre.app.simulate").joinpath(ACCEPTED_FILE)
    return msgspec.json.decode(path.read_bytes(), type=Ensemble)


def load_ensemble(path: Path | None) -> Ensemble:
    """The bundled sets, or one's own. Raises UserError."""
    if path is None:
        return bundled_ensemble()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ensemble)
    except (OSError, msgspec.DecodeError) as error:
        wanted = "a file that `opengyre simulate calibrate` wrote"
        raise UserError(wanted, f"{path}: {error}", "name another") from error


def save_ensemble(ensemble: Ensemble, path: Path) -> None:
    """Write it whole or not at all, a set a line. Raises UserError when the file cannot be written."""
    beside = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(msgspec.json.encode(ensemble).replace(b"},{", b"},\n{") + b"\n")
        beside.replace(path)
    except OSError as error:
        raise UserError(f"to write {path}", str(error), "name another file") from error


def slowest_h(outcome: Outcome) -> float:
    """Mean over groups of the slowest execution."""
    slowest = [max(group) for group in outcome.executions_s]
    return sum(slowest) / len(slowest) / HOUR_S
