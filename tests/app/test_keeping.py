import asyncio
from pathlib import Path

from opengyre.app.history import History
from opengyre.app.keeping import kept_cells
from opengyre.cluster.fake import FakeCluster
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import CellRole
from opengyre.store.run import RunStore


async def test_cells_that_are_lost_in_an_evaluation_come_back_and_take_work(tmp_path: Path) -> None:
    cluster = FakeCluster(2, lambda request: [1], FakeClock())
    await cluster.start()
    back = asyncio.Event()
    with RunStore(tmp_path / "run.sqlite") as store:
        history = History(store, FakeClock(), 2, lambda figures: None)
        async with asyncio.TaskGroup() as tasks, kept_cells(cluster, history, tasks, back.set):
            for cell in (1, 0):
                cluster.lose(cell)
                await back.wait()
                back.clear()
                assert cluster.roles == [CellRole.ROLLOUT, CellRole.ROLLOUT]
        told = [(e.fields["cell"], e.fields["role"]) for e in store.events("role")]
    assert told == [(1.0, "lost"), (1.0, "rollout"), (0.0, "lost"), (0.0, "rollout")]
