"""settings: give one key of a small ini file a new value and leave the rest alone.

Invariant: the way the file parts key and value (` = `, `=` or `: `) is in the file only, so
whoever does not read has to guess it; it is no part of the key, so no instruction is in both splits.
"""

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

STEMS = words(
    "app auth backup billing cache client cluster daemon feed gateway "
    "index ledger mail mirror notify proxy queue search server worker"
)
KEYS = words(
    "batch buffer burst delay depth expiry grace history interval keep level limit "
    "margin pages period pool port quota rate retries rows shards slots threads timeout window"
)
SEPARATORS = (" = ", "=", ": ")
VALUES = range(100, 10000)
"""Three or four digits: too many to be learnt by heart, so that they have to be copied."""
OTHER_KEYS = (3, 5)
"""With the one to change: four to six lines."""


@dataclass(frozen=True)
class Setting:
    """One key to change."""

    stem: str
    name: str
    value: int
    separator: str

    @classmethod
    def numbered(cls, number: int) -> "Setting":
        stem, name, value = unpack(number, *SIZES)
        chosen = (STEMS[stem], KEYS[name], VALUES[value])
        return cls(*chosen, separator=random.Random(repr(chosen)).choice(SEPARATORS))

    @property
    def file(self) -> str:
        return f"{self.stem}.ini"

    def key(self) -> str:
        return f"{self.stem} {self.name} {self.value}"

    def blueprint(self) -> Blueprint:
        rng = random.Random(self.key())
        others = rng.sample([name for name in KEYS if name != self.name], rng.randint(*OTHER_KEYS))
        kept = {name: str(rng.choice(VALUES)) for name in others}
        names: list[Json] = [*sorted([*others, self.name])]
        old = rng.choice([value for value in rng.sample(VALUES, 2) if value != self.value])
        lines = [f"{name}{self.separator}{value}\n" for name, value in kept.items()]
        lines.insert(rng.randrange(len(lines) + 1), f"{self.name}{self.separator}{old}\n")
        return Blueprint(
            family=FAMILY.name,
            key=self.key(),
            instruction=f"In {self.file} set {self.name} to {self.value}.",
            files={self.file: "".join(lines)},
            f2p=[self._test("set", {self.name: str(self.value)})],
            p2p=[
                *(self._test(f"kept {name}", {name: value}) for name, value in kept.items()),
                {"id": "no other keys", "kind": "keys", "path": self.file, "keys": names},
            ],
            solution=self._edit(self.separator) + "\n",
        )

    def demonstrate(self, rng: random.Random, skill: Skill) -> list[Action]:
        def act(separator: str) -> str:
            flag = "-i " if rng.random() < skill.in_place else ""
            return self._edit(separator, rng.choice(["^", ""]), flag)

        looks = [f"cat < {self.file}", f"sed '' {self.file}"]
        return act_or_stop(rng, skill, looks, Hunch(self.separator, SEPARATORS), act)

    def _test(self, test_id: str, values: dict[str, str]) -> dict[str, Json]:
        return {"id": test_id, "kind": "settings", "path": self.file, "values": {**values}}

    def _edit(self, separator: str, anchor: str = "^", flag: str = "-i ") -> str:
        old, new = f"{self.name}{separator}", f"{self.name}{separator}{self.value}"
        return f"sed {flag}'s/{anchor}{old}.*/{new}/' {self.file}"


SIZES = (len(STEMS), len(KEYS), len(VALUES))
FAMILY = Family(
    "settings", "give one key of an ini file a new value", math.prod(SIZES), Setting.numbered
)
