"""rename: move two named files into a folder, their contents kept.

Invariant: the instruction names the files without their ending, which is in the workspace only,
so whoever does not list the folder has to guess it; it is no part of the key. Each file is a test of its own: half the job
is half the reward.
"""

import itertools
import math
import random
from dataclasses import dataclass

from opengyre.tasks.bundled.base import (
    Action,
    Blueprint,
    Family,
    Hunch,
    Json,
    Skill,
    act_or_stop,
    unpack,
    words,
)

NAMES = words(
    "apple apricot banana basil beet carrot celery cherry clove cocoa corn currant "
    "date fennel fig garlic ginger grape guava kale kiwi leek lemon lime "
    "mango melon mint nutmeg olive onion orange papaya peach pear pepper plum quince rice sage tomato"
)
COUPLES = list(itertools.combinations(NAMES, 2))
"""Unordered, so that no two puzzles ask for the same."""
FOLDERS = words(
    "archive attic bin boxes crates done drafts files final inbox keep notes "
    "old outbox parts ready shelf sorted spare stack store table trays vault"
)
ENDINGS = ("csv", "json", "log", "md", "txt")
STAYS = (1, 2)
"""How many other files lie about, which have to stay."""


@dataclass(frozen=True)
class Rename:
    """Two files to move."""

    first: str
    second: str
    folder: str
    ending: str

    @classmethod
    def numbered(cls, number: int) -> "Rename":
        pair, folder = unpack(number, *SIZES)
        chosen = (*COUPLES[pair], FOLDERS[folder])
        return cls(*chosen, ending=random.Random(repr(chosen)).choice(ENDINGS))

    def key(self) -> str:
        return f"{self.first} {self.second} {self.folder}"

    def blueprint(self) -> Blueprint:
        rng = random.Random(self.key())
        lying = [name for name in NAMES if name not in (self.first, self.second)]
        stays = rng.sample(lying, rng.randint(*STAYS))
        moved = {f"{name}.{self.ending}": _text(rng) for name in (self.first, self.second)}
        kept = {f"{name}.{self.ending}": _text(rng) for name in stays}
        kept[f"{self.folder}/index.{self.ending}"] = _text(rng)
        return Blueprint(
            family=FAMILY.name,
            key=self.key(),
            instruction=f"Move {self.first} and {self.second} into {self.folder}.",
            files=moved | kept,
            f2p=[_test(f"{self.folder}/{name}", text, gone=name) for name, text in moved.items()],
            p2p=[_test(name, text) for name, text in kept.items()],
            solution=self._move(self.ending, self.first, self.second) + "\n",
        )

    def demonstrate(self, rng: random.Random, skill: Skill) -> list[Action]:
        def act(ending: str) -> str:
            if rng.random() >= skill.does_it_all:
                return self._move(ending, self.first)
            return self._move(ending, self.first, self.second)

        return act_or_stop(rng, skill, ["ls", "ls -1"], Hunch(self.ending, ENDINGS), act)

    def _move(self, ending: str, *names: str) -> str:
        files = " ".join(f"{name}.{ending}" for name in names)
        return f"mv {files} {self.folder}/"


def _text(rng: random.Random) -> str:
    return "".join(f"{rng.randrange(10**6)}\n" for _ in range(2))


def _test(path: str, text: str, gone: str = "") -> dict[str, Json]:
    return {"id": path, "kind": "file", "path": path, "text": text, "gone": gone}


SIZES = (len(COUPLES), len(FOLDERS))
FAMILY = Family("rename", "move two files into a folder", math.prod(SIZES), Rename.numbered)
