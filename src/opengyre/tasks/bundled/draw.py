"""Which puzzles make up a split.

Invariant: a puzzle's split follows from its key alone, so no seed and no count can put one puzzle
into both; within a split no puzzle is drawn twice, and a larger count extends a smaller one.
"""

import functools
import hashlib
import random
from pathlib import Path
from typing import Literal, get_args

from opengyre.core.errors import UserError
from opengyre.tasks.bundled import rename, repair, settings
from opengyre.tasks.bundled.base import Family, Puzzle
from opengyre.tasks.bundled.folder import write_task

Split = Literal["train", "heldout"]
FAMILIES: dict[str, Family] = {room.FAMILY.name: room.FAMILY for room in (repair, settings, rename)}
HELDOUT_SHARE = 5
"""One key in five is held out: enough to draw hundreds from, and most stays for training."""
SPARSE = 10
"""Below a tenth of the space, a split is surely large enough and need not be counted."""


def families() -> dict[str, str]:
    """Name -> what it is about."""
    return {name: family.about for name, family in FAMILIES.items()}


def split_of(family: str, puzzle: Puzzle) -> Split:
    """The split that this puzzle belongs to, for ever."""
    digest = hashlib.sha256(f"split:{family}:{puzzle.key()}".encode()).digest()
    return "heldout" if int.from_bytes(digest[:8]) % HELDOUT_SHARE == 0 else "train"


@functools.cache
def capacity(family: str, split: Split) -> int:
    """How many puzzles a split has. Counts them: seconds for a large family."""
    found = FAMILIES[family]
    return sum(split_of(family, found.puzzle(number)) == split for number in range(found.space))


def draw(family: str, split: Split, count: int, seed: int) -> list[Puzzle]:
    """count different puzzles of the split. Raises UserError."""
    _check(family, split, count)
    found = FAMILIES[family]
    rng = random.Random(f"{family}:{split}:{seed}")
    seen: set[int] = set()
    puzzles: list[Puzzle] = []
    while len(puzzles) < count:
        number = rng.randrange(found.space)
        if number in seen:
            continue
        seen.add(number)
        puzzle = found.puzzle(number)
        if split_of(family, puzzle) == split:
            puzzles.append(puzzle)
    return puzzles


def write_bundled(family: str, split: Split, count: int, seed: int, into: Path) -> list[Path]:
    """Write count task folders of a split and return them in drawing order. Raises UserError."""
    puzzles = draw(family, split, count, seed)
    return [write_task(puzzle.blueprint(), into) for puzzle in puzzles]


def _check(family: str, split: str, count: int) -> None:
    if family not in FAMILIES:
        raise UserError("a bundled family", repr(family), f"choose one of {', '.join(FAMILIES)}")
    if split not in get_args(Split):
        raise UserError("a split", repr(split), f"choose one of {', '.join(get_args(Split))}")
    if count * SPARSE > FAMILIES[family].space:
        most = capacity(family, "heldout" if split == "heldout" else "train")
        if count > most:
            raise UserError(
                f"{count} {split} tasks of the bundled family {family}",
                f"a {split} split of {most}",
                f"ask for at most {most}",
            )
