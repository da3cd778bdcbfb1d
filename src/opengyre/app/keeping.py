"""Brings lost cells back in phases that have no scheduler: evaluations."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from opengyre.app.history import History
from opengyre.cluster.base import CellLostError, Cluster
from opengyre.core.reasons import CellRole

MAX_FAILED_RESTARTS = 3
"""A cell that dies so often while it starts is not unlucky: the run ends with its reason."""


@contextlib.asynccontextmanager
async def kept_cells(
    cluster: Cluster, history: History, tasks: asyncio.TaskGroup, returned: Callable[[], None]
) -> AsyncIterator[None]:
    """While open, every lost cell is started again; `returned` is called when one serves again."""
    keeper = tasks.create_task(_keep(cluster, history, returned), name="keep-cells")
    try:
        yield
    finally:
        keeper.cancel()


async def _keep(cluster: Cluster, history: History, returned: Callable[[], None]) -> None:
    failures: Counter[int] = Counter()
    while True:
        cell = await cluster.lost.get()
        await history.role(cell, CellRole.LOST)
        try:
            await cluster.restart(cell)
        except CellLostError:
            failures[cell] += 1
            if failures[cell] >= MAX_FAILED_RESTARTS:
                raise
            continue  # it is in `lost` again
        failures[cell] = 0
        await history.role(cell, CellRole.ROLLOUT)
        returned()
