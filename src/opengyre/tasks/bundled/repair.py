"""repair: one of two short Python functions has the wrong operator; the instruction names the right one.

Invariant: the wrong operator is in the file only, so whoever does not read has to guess it; it is
no part of the key, so no instruction is in both splits.
Operators are chosen so that `sed 's/a - b/a + b/'` needs no escape: `*` is never the wrong one.
"""

import math
import operator
import random
from collections.abc import Callable
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
    "area bill bonus cart coins cost debt depth dose fare fuel goals "
    "heat loan mass order pace price rain rent score speed stock tax"
)
FUNCTIONS = words(
    "add_up adjust apply blend change combine compute count cut derive estimate fold "
    "gauge grow join measure merge mix rate reduce scale share shift trim"
)
PAIRS = [
    ("a", "b"),
    ("x", "y"),
    ("n", "k"),
    ("left", "right"),
    ("first", "second"),
    ("old", "new"),
    ("top", "base"),
    ("width", "height"),
    ("total", "part"),
    ("high", "low"),
    ("size", "step"),
    ("gross", "net"),
]
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "%": operator.mod,
    "*": operator.mul,
    "|": operator.or_,
}
WRONG = {"+": "-%|", "-": "+%|", "%": "+-|", "*": "+-%"}
"""Right operator -> the wrong ones."""
HIDDEN_INPUTS = 4
"""Enough that no other simple expression gives all the same values."""


@dataclass(frozen=True)
class Repair:
    """One broken file."""

    stem: str
    function: str
    names: tuple[str, str]
    right: str
    wrong: str

    @classmethod
    def numbered(cls, number: int) -> "Repair":
        stem, function, pair, sign = unpack(number, *SIZES)
        right = list(WRONG)[sign]
        chosen = (STEMS[stem], FUNCTIONS[function], PAIRS[pair], right)
        return cls(*chosen, wrong=random.Random(repr(chosen)).choice(WRONG[right]))

    @property
    def file(self) -> str:
        return f"{self.stem}.py"

    def key(self) -> str:
        return " ".join([self.stem, self.function, *self.names, self.right])

    def blueprint(self) -> Blueprint:
        rng = random.Random(self.key())
        other = rng.choice([name for name in FUNCTIONS if name != self.function])
        first, second = rng.choice([pair for pair in PAIRS if pair[0] != self.names[0]])
        kept = rng.choice(list(OPERATORS))
        functions = [
            _source(self.function, *self.names, self.wrong),
            _source(other, first, second, kept),
        ]
        rng.shuffle(functions)
        return Blueprint(
            family=FAMILY.name,
            key=self.key(),
            instruction=f"Fix {self.file}: {self.function} must give {self._expression(self.right)}.",
            files={self.file: "\n".join(functions)},
            f2p=[_test(self.file, self.function, self._cases(rng))],
            p2p=[_test(self.file, other, _values(kept, _inputs(rng)))],
            solution=self._edit(self.wrong) + "\n",
        )

    def demonstrate(self, rng: random.Random, skill: Skill) -> list[Action]:
        def act(wrong: str) -> str:
            flag = "-i " if rng.random() < skill.in_place else ""
            return self._edit(wrong, rng.choice(["", "return "]), flag)

        looks = [f"cat < {self.file}", f"sed '' {self.file}"]
        return act_or_stop(rng, skill, looks, Hunch(self.wrong, WRONG[self.right]), act)

    def _expression(self, sign: str) -> str:
        return f"{self.names[0]} {sign} {self.names[1]}"

    def _edit(self, wrong: str, before: str = "", flag: str = "-i ") -> str:
        old, new = before + self._expression(wrong), before + self._expression(self.right)
        return f"sed {flag}'s/{old}/{new}/' {self.file}"

    def _cases(self, rng: random.Random) -> list[tuple[int, int, int]]:
        """Inputs on which the broken function is wrong every time."""
        cases: list[tuple[int, int, int]] = []
        while len(cases) < HIDDEN_INPUTS:
            cases += [
                (x, y, value)
                for x, y, value in _values(self.right, _inputs(rng))
                if value != OPERATORS[self.wrong](x, y)
            ]
        return cases[:HIDDEN_INPUTS]


def _source(name: str, first: str, second: str, sign: str) -> str:
    return f"def {name}({first}, {second}):\n    return {first} {sign} {second}\n"


def _inputs(rng: random.Random) -> list[tuple[int, int]]:
    return [(rng.randrange(2, 500), rng.randrange(2, 90)) for _ in range(HIDDEN_INPUTS)]


def _values(sign: str, inputs: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    return [(x, y, OPERATORS[sign](x, y)) for x, y in inputs]


def _test(path: str, name: str, cases: list[tuple[int, int, int]]) -> dict[str, Json]:
    calls: list[Json] = [[[x, y], value] for x, y, value in cases]
    return {"id": name, "kind": "function", "path": path, "name": name, "calls": calls}


SIZES = (len(STEMS), len(FUNCTIONS), len(PAIRS), len(WRONG))
FAMILY = Family(
    "repair", "mend the wrong operator in a short Python file", math.prod(SIZES), Repair.numbered
)
