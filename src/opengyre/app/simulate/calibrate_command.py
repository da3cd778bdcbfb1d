"""What `opengyre simulate calibrate` does: search, show how far it is, keep what it has.

Invariant: the file always holds a whole state of the search, so whatever stops the command, the same
command goes on from there and ends with the same file.
"""

import signal
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from opengyre.app.simulate.ensemble import (
    Ensemble,
    Generation,
    load_ensemble,
    save_ensemble,
)
from opengyre.app.simulate.search import (
    begin,
    enough,
    go_on,
    priors_digest,
    search_of,
    stuck,
    summed_up,
)
from opengyre.app.simulate.show import spread_table
from opengyre.app.simulate.workers import workers
from opengyre.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What is asked for."""

    seed: int
    wanted: int
    """Accepted sets."""
    most: int | None
    """Candidates that are tried now."""
    jobs: int
    out: Path


def calibrate(asked: Calibration) -> None:
    """Search, write the sets, print what came of it.

    Raises UserError when the file is of another search, and when the row is out of reach.
    """
    # A script's background jobs start with SIGINT ignored; sent to a search, it is meant.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True)
    try:
        _conclude(_searched(_begun(asked), asked, console), asked, console)
    except KeyboardInterrupt:
        console.print(f"\nstopped; the same command goes on from {asked.out}")
        raise SystemExit(128 + signal.SIGINT) from None


def _begun(asked: Calibration) -> Ensemble:
    """As the file has it; from nothing without one."""
    if not asked.out.exists():
        state = begin(asked.seed)
        save_ensemble(state, asked.out)  # a file that cannot be written is told before the work
        return state
    state = load_ensemble(asked.out)
    priors = state.search.priors if state.search else ""
    if (state.seed, priors) != (asked.seed, priors_digest()):
        raise UserError(
            f"the file of this search, or none, at {asked.out}",
            f"one of seed {state.seed}" if state.seed != asked.seed else "one with other ranges",
            "name another with --out, or remove it",
        )
    return state


def _searched(begun: Ensemble, asked: Calibration, console: Console) -> Ensemble:
    state = begun
    console.print(
        f"looking for {asked.wanted} sets, processes: {asked.jobs}; ctrl-C stops, and the same "
        "command goes on"
    )
    for generation in search_of(state).generations:
        console.print(_words(generation))
    with workers(asked.jobs) as each, console.status(_progress(state, asked)) as status:
        for newer in go_on(begun, asked.wanted, each):
            save_ensemble(newer, asked.out)
            for generation in search_of(newer).generations[len(search_of(state).generations) :]:
                console.print(_words(generation))
            for fitted in newer.accepted[len(state.accepted) :]:
                ups = ", ".join(f"{name} {up:.3f}" for name, up in fitted.speedups.items())
                console.print(f"candidate {fitted.candidate} fits: {ups}")
            state = newer
            status.update(_progress(state, asked))
            if asked.most is not None and state.candidates - begun.candidates >= asked.most:
                break
    return state


def _progress(state: Ensemble, asked: Calibration) -> str:
    search = search_of(state)
    return (
        f"{_words(summed_up(search))}, of {search.population} places; "
        f"accepted: {len(state.accepted)} of {asked.wanted}"
    )


def _words(one: Generation) -> str:
    kind = "drawn blindly" if one.tolerance is None else f"within {one.tolerance:.2f}"
    return (
        f"generation {one.number}, {kind}: {one.places} sets of {one.ancestors} ancestors, "
        f"{one.moved} of them new, {one.tried} candidates"
    )


def _conclude(state: Ensemble, asked: Calibration, console: Console) -> None:
    accepted = state.accepted
    if accepted:
        console.print(spread_table(accepted))
    ancestors = len({one.ancestor for one in accepted})
    console.print(
        f"{len(accepted)} sets of {ancestors} ancestors fit, of {state.candidates} candidates; "
        f"written to {asked.out}"
    )
    if enough(state, asked.wanted):
        return
    if stuck(state):
        search = search_of(state)
        found = f"{len(accepted)} after {len(search.generations)} generations, the newest "
        found += f"{_words(search.generations[-1])}"
        raise UserError(f"{asked.wanted} sets that fit", found, "widen the ranges of its preset")
    console.print("the same command goes on from there")
