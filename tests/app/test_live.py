"""The live world holds on to its cells."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.app.test_steps import a_config

from opengyre.app.groups import Group, GroupBook
from opengyre.app.history import History
from opengyre.app.keeping import MAX_FAILED_RESTARTS
from opengyre.app.live import Live, Parts
from opengyre.app.rollouts import Rollouts
from opengyre.app.steps import StepRunner
from opengyre.cluster.base import CellLostError
from opengyre.cluster.fake import FakeCluster
from opengyre.core.fakes import CountingIds, FakeClock
from opengyre.core.reasons import CellRole
from opengyre.scheduler.base import SchedulePlan
from opengyre.scheduler.factory import make_scheduler
from opengyre.store.rows import GroupRow, GroupState
from opengyre.store.run import RunStore


class Frail(FakeCluster):
    """A cell that dies `deaths` times while it starts again."""

    def __init__(self, deaths: int) -> None:
        super().__init__(2, lambda request: [1], FakeClock())
        self.deaths = deaths

    async def restart(self, cell: int) -> None:
        if self.deaths:
            self.deaths -= 1
            self.lose(cell)
            raise CellLostError(cell, "it started")
        await super().restart(cell)


class NoWork:
    """Groups without members, so that nothing but the cells moves."""

    def __init__(self) -> None:
        self._made = 0

    async def open(self, version: int) -> Group:
        self._made += 1
        row = GroupRow(
            group_id=f"g{self._made}",
            index=self._made,
            task_id="t",
            version_dispatched=version,
            state=GroupState.OUTSTANDING,
        )
        return Group(row, cast(Any, None))

    def orders(self, group: Group) -> list[object]:
        return []

    def fill(self) -> None:
        pass


async def lose_a_satellite(cluster: Frail, folder: Path, until: Callable[[Parts], bool]) -> None:
    await cluster.start()
    config, clock, idle, changed = a_config(), FakeClock(), NoWork(), asyncio.Event()
    plan = SchedulePlan(
        cells=(2, 2),
        group_size=2,
        groups_per_step=1,
        steps_per_burst=1,
        staleness_steps=0,
        total_steps=1,
    )

    async def published(version: int, step: int) -> None:
        pass

    with RunStore(folder / "run.sqlite") as store:
        async with asyncio.TaskGroup() as tasks:
            parts = Parts(
                scheduler=make_scheduler(plan, "elastic"),
                cluster=cluster,
                rollouts=cast(Rollouts, idle),
                groups=cast(GroupBook, idle),
                steps=StepRunner(config, cluster, clock, CountingIds()),
                history=History(store, clock, 2, lambda _: changed.set()),
                clock=clock,
                tasks=tasks,
                published=published,
            )
            running = tasks.create_task(Live(parts).run([]))
            cluster.lose(1)
            while not until(parts):
                await changed.wait()
                changed.clear()
            running.cancel()
            for task in asyncio.all_tasks():
                if task.get_name() == "watch-cells":
                    task.cancel()


async def test_a_satellite_that_dies_while_it_starts_is_started_again(tmp_path: Path) -> None:
    cluster = Frail(MAX_FAILED_RESTARTS - 1)

    def returned(parts: Parts) -> bool:
        return cluster.deaths == 0 and parts.scheduler.state.cells[1].role is CellRole.ROLLOUT

    await lose_a_satellite(cluster, tmp_path, returned)
    assert cluster.roles[1] is CellRole.ROLLOUT


async def test_a_satellite_that_never_starts_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as told:
        await lose_a_satellite(Frail(MAX_FAILED_RESTARTS), tmp_path, lambda _: False)
    assert told.group_contains(CellLostError, match="it started")
