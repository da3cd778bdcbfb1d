"""Published workloads, as files: what is known of each and what is assumed.

Invariant: a preset's known values come from its source alone, and whatever is neither known nor
assumed there is as in the calibrated preset. No file is chosen by looking at a speed-up, except that
the calibrated one is fitted to its own.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct, field

from opengyre.core.errors import UserError

CALIBRATED = "nl2repo-122b"
"""The preset that the ensemble is fitted to."""

OF_WORKLOAD = (
    "training_share",
    "tool_share",
    "prefill_share",
    "task_spread",
    "answer_spread",
    "tool_spread",
    "execution_tokens",
    "evaluation_s",
)
"""Ranges of the calibrated preset that say how its agents work, not what they run on."""

Values = dict[str, float]
"""Parameters of a world by name; units in the comments of the calibrated preset."""


class Span(Struct, frozen=True, forbid_unknown_fields=True):
    """Lowest and highest published value."""

    low: float
    high: float


class Assumed(Struct, frozen=True, forbid_unknown_fields=True):
    """What the source does not say."""

    choices: dict[str, list[float]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)

    def draw(self, draw: random.Random) -> Values:
        """One value for each."""
        drawn: Values = dict(self.values)
        for name, among in self.choices.items():
            drawn[name] = draw.choice(among)
        for name, (low, high) in self.ranges.items():
            drawn[name] = draw.uniform(low, high)
        return drawn


class Preset(Struct, frozen=True, forbid_unknown_fields=True):
    """One file. Made by hand; read by the command line."""

    title: str
    source: str
    calibrated: bool
    known: dict[str, float | str]
    assumed: Assumed
    published: dict[str, Span] = field(default_factory=dict)
    """Speed-up of elastic over each baseline."""
    policies: tuple[str, ...] = ("elastic", "colocate", "async")
    """That the command runs."""

    @property
    def known_numbers(self) -> Values:
        """Without what is only told."""
        return {name: value for name, value in self.known.items() if not isinstance(value, str)}


@dataclass(frozen=True)
class Workplace:
    """A preset under one parameter set of the ensemble."""

    name: str
    preset: Preset
    values: Mapping[str, float]


def preset_names() -> list[str]:
    """All presets, the calibrated one first."""
    folder = files("opengyre.app.simulate").joinpath("presets")
    names = sorted(one.name.removesuffix(".toml") for one in folder.iterdir())
    return sorted(names, key=lambda name: name != CALIBRATED)


@cache
def load_preset(name: str) -> Preset:
    """One preset. Raises UserError for an unknown name."""
    names = preset_names()
    if name not in names:
        raise UserError(f"a preset: {', '.join(names)}", name, "see: opengyre simulate --list")
    path = files("opengyre.app.simulate").joinpath("presets", f"{name}.toml")
    return msgspec.toml.decode(path.read_text(encoding="utf-8"), type=Preset)


def workplace(name: str, parameters: Values, member: int, *, wide: bool = False) -> Workplace:
    """A preset's world as one set of the ensemble sees it: its own known facts over its own
    assumptions over the set's values; wide = those of them that are the workload's drawn anew."""
    preset = load_preset(name)
    if preset.calibrated:
        return Workplace(name, preset, {**parameters, **preset.known_numbers})
    draw = random.Random(f"{member}/{name}")
    own = preset.assumed.draw(draw)
    anew = _workload_anew(draw) if wide else {}
    return Workplace(name, preset, {**parameters, **anew, **own, **preset.known_numbers})


def _workload_anew(draw: random.Random) -> Values:
    ranges = load_preset(CALIBRATED).assumed.ranges
    return {name: draw.uniform(*ranges[name]) for name in OF_WORKLOAD}
