"""Policies on one workload, in turns, through the real controller, cells and sandbox."""

import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from opengyre.app.bench.meter import CellMeter, cpu_seconds
from opengyre.app.bench.runs import CpuUse, PolicyRun, figures_of
from opengyre.app.bench.workload import Workload, configuration, write_workload
from opengyre.app.claim import remember
from opengyre.app.history import Figures
from opengyre.app.paths import RunPaths
from opengyre.app.stopping import until_done
from opengyre.app.train import Site, World, train
from opengyre.app.wall import RandomIds, WallClock
from opengyre.config.run import PolicyName, RunConfig
from opengyre.store.run import RunStore


@dataclass(frozen=True)
class Contender:
    """A policy, and for the fixed split how many cells always train."""

    policy: PolicyName
    training_cells: int = 1

    def label(self, cells: int) -> str:
        """Such as "async 1:3" for one training and three rollout cells."""
        if self.policy != "async":
            return self.policy
        return f"async {self.training_cells}:{cells - self.training_cells}"


Tell = Callable[[str, int], None]
"""(label of the run under way, steps done in it)."""


def contenders(cells: int, *, forecast: bool = False) -> list[Contender]:
    """Elastic, colocate, and async at every split; forecast if asked for."""
    splits = [Contender("async", training) for training in range(1, cells)]
    learned = [Contender("forecast")] if forecast else []
    return [Contender("elastic"), Contender("colocate"), *splits, *learned]


def in_turns(entered: list[Contender], repeats: int) -> Iterator[tuple[int, Contender]]:
    """All contenders in each repeat, each time another one first: drift of the machine hits all."""
    for repeat in range(repeats):
        first = repeat % len(entered)
        for contender in entered[first:] + entered[:first]:
            yield repeat, contender


def measure_all(
    workload: Workload, entered: list[Contender], folder: Path, repeats: int, tell: Tell
) -> list[PolicyRun]:
    """Run every contender `repeats` times; each run keeps its folder below `folder`."""
    write_workload(workload, folder)
    return [
        measure(workload, folder, contender, repeat, tell)
        for repeat, contender in in_turns(entered, repeats)
    ]


def measure(
    workload: Workload, folder: Path, contender: Contender, repeat: int, tell: Tell
) -> PolicyRun:
    """One run through the real controller, cells, proxy, sandbox and store."""
    label = contender.label(workload.cells)
    config = configuration(workload, folder, contender.policy, contender.training_cells)
    run = folder / "runs" / f"{label.replace(' ', '-').replace(':', '-')}-{repeat}"
    paths = RunPaths.make(run)
    paths.clear()
    with RunStore(paths.store) as store:
        remember(config, store)
    watch = _Watch(config, lambda steps: tell(label, steps))
    world = World(WallClock(), RandomIds(), watch.watch, watch.opened)
    outcome = until_done(train(config, paths, world, resume=False), "the bench was stopped")
    with RunStore(paths.store) as store:
        return figures_of(store, outcome, watch.used(), label, repeat)


class _Watch:
    """Meters CPU time from the start of training to the end of the last step."""

    def __init__(self, config: RunConfig, tell: Callable[[int], None]) -> None:
        self._config = config
        self._tell = tell
        self._site: Site | None = None
        self._meter: CellMeter | None = None
        self._beside = 0.0
        self._steps = 0

    def opened(self, site: Site) -> None:
        """Cells are up."""
        self._site = site

    def watch(self, figures: Figures) -> None:
        """Something changed."""
        if figures.phase != "training" or self._steps == self._config.run.steps:
            return
        if self._meter is None:
            self._meter = CellMeter(self._cpu, figures.roles)
            self._beside = -_cpu_beside()
        self._meter.roles(figures.roles)
        if len(figures.steps) != self._steps:
            self._steps = len(figures.steps)
            self._tell(self._steps)
        if self._steps == self._config.run.steps:
            self._meter.read()
            self._beside += _cpu_beside()

    def _cpu(self, cell: int) -> float:
        assert self._site is not None, "training began before the cells were up"
        return cpu_seconds(self._site.cluster.pid(cell))

    def used(self) -> CpuUse:
        """CPU seconds until the last step."""
        assert self._meter is not None, "the run never trained"
        by_role = {role.value: seconds for role, seconds in self._meter.seconds.items()}
        return CpuUse(self._config.cells.count, by_role, self._beside)


def _cpu_beside() -> float:
    """Of this process and the children that it has waited for: sandboxes, but no living cell."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)
