"""What a family is: a numbered space of puzzles, each of which is wholly defined by its key.

Invariant: everything about a puzzle follows from its number, and two numbers of a family have
different keys; so whatever is decided by the key (split, task id, hidden inputs) is the same in
every run.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Json = str | int | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True)
class Final:
    """The agent's last message: text without a tool call."""

    text: str


Action = str | Final
"""A bash command, or the end."""


@dataclass(frozen=True)
class Skill:
    """How careful a demonstrator is: the probability of each decision that it takes.

    The decisions fall in the first tokens of an action (read or guess, act or stop), so that
    reinforcement can sharpen them; the defaults give a pass rate of about 25%.
    """

    reads: float = 0.8
    """It looks at the workspace before it acts; otherwise it guesses what it would have seen."""
    acts_after_reading: float = 0.85
    """Having looked, it does the job; otherwise it looks once more or says that it is done."""
    acts_on_a_guess: float = 0.8
    """Not having looked, it acts; otherwise it says at once that it is done."""
    does_it_all: float = 0.8
    """It does every part of a job that has parts; otherwise the first part only."""
    in_place: float = 0.35
    """It lets sed change the file; otherwise it forgets -i and only sees what would change."""
    looks_twice: float = 0.15
    """Having looked and not acting, it looks again before it stops."""


PERFECT = Skill(
    reads=1, acts_after_reading=1, acts_on_a_guess=1, does_it_all=1, in_place=1, looks_twice=0
)


@dataclass(frozen=True)
class Blueprint:
    """A puzzle as the contents of a task folder."""

    family: str
    key: str
    instruction: str
    files: dict[str, str]
    """Workspace path -> text."""
    f2p: list[dict[str, Json]]
    """Tests that fail in the untouched workspace and pass once it is solved (bundled/verifier.py
    lists the kinds)."""
    p2p: list[dict[str, Json]]
    """Tests that pass in both."""
    solution: str
    """A bash script for the work folder."""


class Puzzle(Protocol):
    """One point of a family's space."""

    def key(self) -> str:
        """What tells it from every other puzzle of the family."""
        ...

    def blueprint(self) -> Blueprint:
        """The task folder's contents."""
        ...

    def demonstrate(self, rng: random.Random, skill: Skill) -> list[Action]:
        """Commands turn by turn, then a Final."""
        ...


@dataclass(frozen=True)
class Family:
    """A numbered space of puzzles."""

    name: str
    about: str
    """One line for people."""
    space: int
    """Puzzles are numbered from 0 to space - 1."""
    puzzle: Callable[[int], Puzzle] = field(repr=False)


def unpack(number: int, *sizes: int) -> list[int]:
    """Mixed-radix digits of number, one below each size; number = the product of sizes is out."""
    digits = []
    for size in sizes:
        number, digit = divmod(number, size)
        digits.append(digit)
    assert number == 0, "number is outside the space"
    return digits


def words(text: str) -> list[str]:
    """A list of words, written as a text."""
    return text.split()


@dataclass(frozen=True)
class Hunch:
    """What only the workspace tells, and what one could take it to be."""

    truth: str
    guesses: Sequence[str]


def act_or_stop(
    rng: random.Random, skill: Skill, looks: list[str], hunch: Hunch, act: Callable[[str], str]
) -> list[Action]:
    """The plot that all families share: look or guess, then act or stop.

    looks are equivalent ways to look, none of which Claude Code takes for a read (as it does a lone
    cat, head or grep): after one it adds a note to the result of the command that changes the file.
    act gives the command for a truth or a guess.
    """
    actions: list[Action] = []
    knows = rng.random() < skill.reads
    if knows:
        actions.append(rng.choice(looks))
    if rng.random() < (skill.acts_after_reading if knows else skill.acts_on_a_guess):
        actions.append(act(hunch.truth if knows else rng.choice(hunch.guesses)))
    elif knows and rng.random() < skill.looks_twice:
        actions.append(rng.choice(looks))
    return [*actions, Final("Done.")]
