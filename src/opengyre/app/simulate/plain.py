"""The published baselines as one may run them without tuning: how slow can each be made?

Invariant: elastic runs under the set's own plan in every line, and every line says how its baseline
ran; a span that is reached here shows what the published baseline may have been, not what it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from opengyre.app.simulate.baselines import ELASTIC, Choice, run, splits
from opengyre.app.simulate.build import Scene
from opengyre.app.simulate.ensemble import Fitted
from opengyre.app.simulate.paper import Row, by_preset, fresh_seed, row_of, scene_of
from opengyre.app.simulate.presets import load_preset
from opengyre.app.simulate.workers import Each

BARRIERS = Choice("colocate", streaming=False)
WAYS = {
    "async": ("half train", "slowest split"),
    "colocate": ("own burst", "half the burst"),
}
"""By baseline; all without streaming. half train: of an odd number of cells, the fewer. own burst: that of
the set, which elastic has too."""


@dataclass(frozen=True)
class PlainRow:
    """A published speed-up and those over one plain way to run its baseline."""

    way: str
    row: Row

    def as_json(self) -> dict[str, object]:
        """As --json writes it."""
        return {**self.row.as_json(), "run_as": self.way, "reached": self.row.reached}


def plain_rows(
    sets: Sequence[Fitted], seed: int, each: Each, *, wide: bool = False
) -> list[PlainRow]:
    """Of every published speed-up, a row a way."""
    of_set = partial(_speedups_of, seed=seed, wide=wide)
    return [
        PlainRow(way, row_of(name, baseline, (one[baseline][way] for one in found), wide=wide))
        for name, found in by_preset(of_set, sets, each)
        for baseline in load_preset(name).published
        for way in WAYS[baseline]
    ]


def _speedups_of(of: tuple[str, Fitted], *, seed: int, wide: bool) -> dict[str, dict[str, float]]:
    name, fitted = of
    return plain_speedups(scene_of(name, fitted, wide=wide), fresh_seed(fitted, seed))


def plain_speedups(scene: Scene, seed: int) -> dict[str, dict[str, float]]:
    """How many times as fast elastic is, by baseline and way."""
    elastic, mu = run(scene, ELASTIC, seed).hours, scene.plan.steps_per_burst
    even = max(1, len(scene.plan.cells) // 2)
    by_split = [
        run(scene, choice, seed).hours / elastic for choice in splits(scene) if not choice.streaming
    ]
    by_burst = [
        run(scene.with_plan(steps_per_burst=burst), BARRIERS, seed).hours / elastic
        for burst in (mu, max(1, mu // 2))
    ]
    return {
        "async": dict(zip(WAYS["async"], (by_split[even - 1], max(by_split)), strict=True)),
        "colocate": dict(zip(WAYS["colocate"], by_burst, strict=True)),
    }
