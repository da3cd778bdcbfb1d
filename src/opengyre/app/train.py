"""A whole run: wire the parts, evaluate, train, evaluate, sum up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from opengyre.app.episode import Tally, Workshop
from opengyre.app.garbage import short_collections
from opengyre.app.groups import GroupBook
from opengyre.app.heldout import HeldOut
from opengyre.app.history import Figures, History
from opengyre.app.keeping import kept_cells
from opengyre.app.live import Live, Parts
from opengyre.app.paths import RunPaths
from opengyre.app.policy import open_family
from opengyre.app.rollouts import Rollouts
from opengyre.app.sources import check_disjoint, heldout_tasks, policy_folder, training_tasks
from opengyre.app.steps import StepRunner
from opengyre.cluster.base import Move
from opengyre.cluster.local import LocalCluster
from opengyre.config.run import RunConfig
from opengyre.core.protocols import Clock, IdSource
from opengyre.core.reasons import CellRole
from opengyre.harness.make import make_harness
from opengyre.learner.checkpoint import checkpoints, read_mark
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import Executions
from opengyre.proxy.serving import serve
from opengyre.proxy.session import Limits
from opengyre.sandbox.make import make_sandbox
from opengyre.scheduler.base import SchedulePlan
from opengyre.scheduler.factory import evens_out, make_scheduler
from opengyre.scheduler.staleness import StalenessSummary
from opengyre.store.run import RunStore
from opengyre.tasks.base import Task
from opengyre.tasks.sampler import TaskCycle
from opengyre.tree.roles import classify

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """What is passed in from outside, so that runs replay."""

    clock: Clock
    ids: IdSource
    watch: Callable[[Figures], None]
    """Shown the newest figures at each change."""
    opened: "Callable[[Site], None]" = lambda _: None
    """Told the open site, once: whoever watches cells, or breaks them in a test, starts here."""


@dataclass
class Outcome:
    """What a run came to, beside its store."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By phase."""
    tally: Tally = field(default_factory=Tally)
    moved_with_kv: int = 0
    recomputed: int = 0
    moves: list[Move] = field(default_factory=list)
    role_switches: int = 0
    staleness: StalenessSummary | None = None


@dataclass(frozen=True)
class Site:
    """The parts that evaluation and training share."""

    config: RunConfig
    paths: RunPaths
    store: RunStore
    cluster: LocalCluster
    history: History
    shop: Workshop
    world: World

    def room(self) -> int:
        """Executions that the cells in rollout serve at a time."""
        roles = self.cluster.roles
        return sum(role is CellRole.ROLLOUT for role in roles) * self.config.cells.capacity


@contextlib.asynccontextmanager
async def open_site(
    config: RunConfig, paths: RunPaths, world: World, start: "Start"
) -> AsyncIterator[Site]:
    """Start cells, proxy and store; stop them in reverse order."""
    sandbox = make_sandbox(config.sandbox, world.clock)
    harness = make_harness(config.harness)
    family = open_family(start.model, config.policy.family, config.policy.tool_style)
    cluster = LocalCluster(
        config.cells,
        config.learner,
        start.model,
        paths.folder,
        temperature=config.policy.temperature,
        context_tokens=config.policy.context_tokens,
        version=start.version,
        clock=world.clock,
        evens_out=evens_out(config.schedule.policy),
    )
    executions = Executions(family)
    limits = Limits(
        context_tokens=config.policy.context_tokens,
        max_new_tokens=config.policy.max_new_tokens,
        max_body_bytes=config.proxy.max_body_mb * 1024 * 1024,
    )
    with RunStore(paths.store) as store:
        await store.begin_life()
        app = build_app(
            executions,
            cluster,
            store,
            family,
            limits,
            world.clock,
            world.ids,
            classify=partial(classify, unknown_as_main=config.harness.train_unknown),
        )
        serving = await serve(app, socket_path=paths.socket, port=config.proxy.port)
        try:
            await cluster.start(start.checkpoint)
            try:
                async with short_collections(world.clock, lambda: executions.idle):
                    yield Site(
                        config=config,
                        paths=paths,
                        store=store,
                        cluster=cluster,
                        history=History(store, world.clock, config.cells.count, world.watch),
                        shop=Workshop(
                            config=config,
                            paths=paths,
                            harness=harness,
                            sandbox=sandbox,
                            executions=executions,
                            store=store,
                            clock=world.clock,
                            ids=world.ids,
                            tally=Tally(),
                            released=cluster.release,
                        ),
                        world=world,
                    )
            finally:
                await cluster.close()
        finally:
            await serving.stop()


@dataclass(frozen=True)
class Start:
    """Where a run begins: at its policy, or at its newest checkpoint."""

    model: Path
    step: int = 0
    version: int = 0
    checkpoint: Path | None = None


def find_start(config: RunConfig, paths: RunPaths, *, resume: bool) -> Start:
    """The newest whole checkpoint when resuming, else the configured policy."""
    found = checkpoints(paths.checkpoints) if resume else []
    if not found:
        return Start(policy_folder(config))
    mark = read_mark(found[-1])
    return Start(found[-1], mark.step, mark.version, found[-1])


async def train(
    config: RunConfig,
    paths: RunPaths,
    world: World,
    *,
    resume: bool,
) -> Outcome:
    """Run to the end. Cancelled or failed, it leaves a folder that `resume` continues."""
    outcome = Outcome()
    try:
        start = find_start(config, paths, resume=resume)
        train_set = training_tasks(config, paths.folder)
        heldout_set = heldout_tasks(config, paths.folder)
        check_disjoint(train_set, heldout_set)
        async with open_site(config, paths, world, start) as site, asyncio.TaskGroup() as tasks:
            world.opened(site)
            run = _Run(site, start, TaskCycle(train_set, config.run.seed), tasks, outcome)
            await run.phases(heldout_set)
    finally:
        paths.remove_private()
    return outcome


class _Run:
    """The phases of one run over an open site."""

    def __init__(
        self, site: Site, start: Start, cycle: TaskCycle, tasks: asyncio.TaskGroup, outcome: Outcome
    ) -> None:
        self._site = site
        self._start = start
        self._cycle = cycle
        self._tasks = tasks
        self._outcome = outcome
        self._rollouts = Rollouts(site.shop, tasks, site.room)

    async def phases(self, heldout: list[Task]) -> None:
        """Before, training, after."""
        section, site = self._site.config.eval, self._site
        held = HeldOut(
            site.config, heldout, self._rollouts, site.history, site.store, site.world.clock
        )
        await site.store.rewind(self._start.step)
        await site.history.resumed()
        site.history.figures.steps.extend(site.store.steps())
        if section.before and self._start.step == 0:
            await self._evaluate(held, "before", 0)
        if self._start.step < site.config.run.steps:
            await self._timed("training", self._train())
        if section.after:
            await self._evaluate(held, "after", site.config.run.steps)
        self._sum_up()

    async def _evaluate(self, held: HeldOut, name: str, step: int) -> None:
        known = self._site.store.events("evaluation")
        done = {(event.fields["name"], event.fields["step"]) for event in known}
        for greedy in (False, True)[: 1 + self._site.config.eval.greedy]:
            label = f"{name}-greedy" if greedy else name
            if (label, float(step)) in done:  # before the run was stopped
                continue
            site = self._site
            async with kept_cells(site.cluster, site.history, self._tasks, self._rollouts.fill):
                work = held.evaluate(label, site.cluster.version, step, greedy=greedy)
                await self._timed(label, work)

    async def _train(self) -> None:
        site, config = self._site, self._site.config
        groups = GroupBook(config, self._cycle, site.store, site.world.clock)
        total = (config.run.steps - self._start.step) * config.schedule.groups_per_step
        await site.history.phase("training", total * config.schedule.group_size)
        scheduler = make_scheduler(_plan(config, self._start), config.schedule.policy)
        parts = Parts(
            scheduler=scheduler,
            cluster=site.cluster,
            rollouts=self._rollouts,
            groups=groups,
            steps=StepRunner(config, site.cluster, site.world.clock, site.world.ids),
            history=site.history,
            clock=site.world.clock,
            tasks=self._tasks,
            published=self._save,
        )
        await Live(parts).run(await groups.resume())
        self._outcome.staleness = scheduler.state.staleness_summary()

    async def _save(self, version: int, step: int) -> None:
        await self._site.cluster.save(self._site.paths.checkpoints, step=step, version=version)

    async def _timed(self, phase: str, work: Awaitable[T]) -> T:
        began = self._site.world.clock.now()
        try:
            return await work
        finally:
            self._outcome.seconds[phase] = self._site.world.clock.now() - began

    def _sum_up(self) -> None:
        counters = self._site.cluster.counters
        self._outcome.tally = self._site.shop.tally
        self._outcome.moved_with_kv = counters.moved_with_kv
        self._outcome.recomputed = counters.recomputed
        self._outcome.moves = counters.moves
        self._outcome.role_switches = self._site.history.figures.role_switches


def _plan(config: RunConfig, start: Start) -> SchedulePlan:
    schedule = config.schedule
    return SchedulePlan(
        cells=(config.cells.capacity,) * config.cells.count,
        group_size=schedule.group_size,
        groups_per_step=schedule.groups_per_step,
        steps_per_burst=schedule.steps_per_burst,
        staleness_steps=schedule.staleness_steps,
        total_steps=config.run.steps,
        training_cells=config.cells.training_cells,
        first_step=start.step,
        first_version=start.version,
    )
