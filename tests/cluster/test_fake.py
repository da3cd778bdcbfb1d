"""The fake keeps the promises of a cluster that its users rely on."""

import asyncio

import pytest

from opengyre.cluster.base import CORE, CellLostError, Cluster
from opengyre.cluster.fake import FakeCluster
from opengyre.core.errors import ClusterError
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import CellRole
from tests.cluster.conftest import micro_step, request


async def started() -> FakeCluster:
    cluster = FakeCluster(2, lambda r: [5, 6, 7], FakeClock())
    surface: Cluster = cluster
    await surface.start()
    return cluster


async def test_calls_wait_while_no_cell_serves():
    cluster = await started()
    for cell in (0, 1):
        await cluster.to_training(cell)
    stream = cluster.generate(request("a"))
    first = asyncio.ensure_future(anext(stream))
    done, _ = await asyncio.wait([first], timeout=0)
    assert not done
    await cluster.to_rollout(1)
    assert (await first).token_ids == [5]
    assert [c.token_ids async for c in stream] == [[6], [7]]


async def test_micro_steps_of_a_lost_cell_are_done_again_and_count_once():
    cluster = await started()
    for cell in (0, 1):
        await cluster.to_training(cell)
    await cluster.accumulate(1, micro_step("m0", seed=0))
    await cluster.accumulate(CORE, micro_step("m1", seed=1))
    cluster.lose(1)
    with pytest.raises(CellLostError):
        await cluster.accumulate(1, micro_step("m2", seed=2))
    with pytest.raises(CellLostError):
        await cluster.step(1, 4, 0.1)
    assert cluster.undelivered(1) == ["m0"]
    await cluster.accumulate(CORE, micro_step("m0", seed=0))
    await cluster.step(1, 4, 0.1)
    assert sorted(cluster.micro_ids) == ["m0", "m1"]
    await cluster.restart(1)
    assert cluster.roles == [CellRole.TRAINING, CellRole.ROLLOUT]


async def test_wrong_roles_are_refused():
    cluster = await started()
    with pytest.raises(ClusterError):
        await cluster.to_rollout(0)
    with pytest.raises(ClusterError):
        await cluster.step(1, 1, 0.1)
