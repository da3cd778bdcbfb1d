"""Real cells: no token of a call is lost, repeated or changed, whatever happens to its cell; a step over
several cells is the step of one, also when a cell dies in it.
"""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from opengyre.cluster.base import CORE, CellLostError
from opengyre.cluster.local import LocalCluster, remove_stale
from opengyre.core.errors import ClusterError, EngineError
from opengyre.core.reasons import FinishReason
from opengyre.core.records import GenerateRequest, MicroStep, TokenChunk
from opengyre.learner.checkpoint import Checkpoint, load
from opengyre.learner.trainer import Trainer
from opengyre.model.qwen3 import causal_attend
from opengyre.transfer.folder import ShmDir
from tests.cluster.conftest import (
    LEARNER,
    TEMPERATURE,
    make_cluster,
    micro_step,
    request,
    tokens_of,
    whole,
)

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(90),  # the first test starts the cells: imports of torch on a busy machine
    pytest.mark.slow,
]
RATE = 1e-3
ENOUGH = 5
"""Chunks after which a call is in mid-generation."""


async def started(
    cluster: LocalCluster, wanted: GenerateRequest, chunks: list[TokenChunk]
) -> asyncio.Task[None]:
    """A task that fills `chunks`, returned when some are there."""
    going = asyncio.Event()

    async def consume() -> None:
        async for chunk in cluster.generate(wanted):
            chunks.append(chunk)
            if len(chunks) == ENOUGH:
                going.set()
        cluster.release(wanted.execution_id)

    task = asyncio.create_task(consume())
    await going.wait()
    return task


def cells_of(chunks: list[TokenChunk]) -> list[int]:
    """That the call was given to, in order."""
    return [cell for chunk in chunks for cell in chunk.cells]


async def test_a_call_moved_with_its_kv_draws_the_same_tokens(cluster):
    want = await whole(cluster, request("still", execution="x1"))
    chunks: list[TokenChunk] = []
    task = await started(cluster, request("moving", execution="x1"), chunks)
    home = cluster.home("x1")
    report = await cluster.to_training(home)
    await task
    assert cells_of(want) == [home]
    assert cells_of(chunks) == [home, 1 - home]
    assert (report.moved_with_kv, report.recomputed) == (1, 0)
    assert tokens_of(chunks) == tokens_of(want)
    assert chunks[-1].finish is FinishReason.LENGTH
    assert sum(c.moves_with_kv for c in chunks) == 1
    assert sum(c.moves_recomputed for c in chunks) == 0
    close = pytest.approx([p for c in want for p in c.logprobs], abs=1e-4)
    assert [p for c in chunks for p in c.logprobs] == close


async def test_a_call_whose_kv_is_stale_is_recomputed_with_the_same_tokens(cluster):
    want = await whole(cluster, request("still", execution="x2"))
    chunks: list[TokenChunk] = []
    task = await started(cluster, request("moving", execution="x2"), chunks)
    home = cluster.home("x2")
    await cluster.to_training(1 - home)
    report = await cluster.to_training(home)  # nobody serves: the call waits with its KV
    await cluster.publish(cluster.version + 1)
    for cell in (home, 1 - home):
        await cluster.to_rollout(cell)
    await task
    assert report.moved_with_kv == 1
    check_recomputed_once(cluster, chunks, want)


async def test_a_held_call_leaves_its_kv_behind_for_the_next_version(cluster):
    want = await whole(cluster, request("still", execution="x9"))
    chunks: list[TokenChunk] = []
    task = await started(cluster, request("held", execution="x9"), chunks)
    home = cluster.home("x9")
    await cluster.pause()
    report = await cluster.to_training(home)
    await cluster.publish(cluster.version + 1)
    await cluster.to_rollout(home)
    await cluster.resume()
    await task
    assert (report.moved_with_kv, report.recomputed) == (0, 1)
    check_recomputed_once(cluster, chunks, want)


def check_recomputed_once(
    cluster: LocalCluster, chunks: list[TokenChunk], want: list[TokenChunk]
) -> None:
    assert tokens_of(chunks) == tokens_of(want)
    assert sum(c.moves_recomputed for c in chunks) == 1
    assert {c.version for c in chunks} == {cluster.version - 1, cluster.version}


async def test_a_call_survives_the_death_of_its_cell(cluster):
    want = await whole(cluster, request("still", execution="x3"))
    chunks: list[TokenChunk] = []
    task = await started(cluster, request("orphan", execution="x3"), chunks)
    assert cluster.home("x3") == 1
    os.kill(cluster.pid(1), signal.SIGKILL)
    assert await cluster.lost.get() == 1
    await task
    assert tokens_of(chunks) == tokens_of(want)
    assert sum(c.moves_recomputed for c in chunks) == 1
    assert cells_of(chunks) == [1, 0]


async def test_many_calls_keep_their_tokens_while_cells_switch_back_and_forth(cluster):
    requests = [
        request(f"many-{i}", execution=f"many-{i // 2}", seed=i, tokens=80) for i in range(8)
    ]
    still = await asyncio.gather(*(whole(cluster, r) for r in requests))
    want = {r.request_id: tokens_of(c) for r, c in zip(requests, still, strict=True)}
    tasks = {r.request_id: asyncio.create_task(whole(cluster, r)) for r in requests}
    switches = 0
    while not all(t.done() for t in tasks.values()):
        cell = switches % 2
        await cluster.to_training(cell)
        await cluster.to_rollout(cell)
        switches += 1
    assert {name: tokens_of(await t) for name, t in tasks.items()} == want
    assert switches >= 2


async def test_calls_wait_while_no_cell_serves(cluster):
    want = await whole(cluster, request("still", execution="x5"))
    chunks: list[TokenChunk] = []
    task = await started(cluster, request("paused", execution="x5"), chunks)
    await cluster.pause()
    for cell in (0, 1):
        await cluster.to_training(cell)
    late = asyncio.create_task(whole(cluster, request("late", execution="x5")))
    for cell in (0, 1):
        await cluster.to_rollout(cell)
    await cluster.resume()
    await task
    assert tokens_of(chunks) == tokens_of(want)
    assert tokens_of(await late) == tokens_of(want)


async def test_a_pause_in_place_keeps_the_kv(cluster):
    want = await whole(cluster, request("still", execution="x6"))
    chunks: list[TokenChunk] = []
    task = await started(cluster, request("held", execution="x6"), chunks)
    await cluster.pause()
    await cluster.resume()
    await task
    assert tokens_of(chunks) == tokens_of(want)
    assert not any(c.moves_with_kv or c.moves_recomputed for c in chunks)


async def test_closing_the_iterator_cancels(cluster):
    cancelled = cluster.counters.cancelled
    stream = cluster.generate(request("gone", tokens=900))
    async for _ in stream:
        break
    await stream.aclose()
    assert cluster.counters.cancelled == cancelled + 1
    # the engine would refuse a request that it still has
    again = await whole(cluster, request("gone", tokens=3))
    assert len(tokens_of(again)) == 3


async def test_an_impossible_request_raises_and_harms_nobody(cluster):
    impossible = request("long")
    impossible = type(impossible)(
        request_id="long", execution_id="long", prompt_ids=[], sampling=impossible.sampling
    )
    with pytest.raises(EngineError, match="prompt"):
        await whole(cluster, impossible)
    assert len(tokens_of(await whole(cluster, request("short", tokens=3)))) == 3


async def test_a_switch_from_the_wrong_role_is_refused(cluster):
    with pytest.raises(ClusterError, match="training"):
        await cluster.to_rollout(1)


async def test_a_switch_of_a_cell_that_was_just_lost_says_so(cluster):
    os.kill(cluster.pid(1), signal.SIGKILL)
    assert await cluster.lost.get() == 1
    with pytest.raises(CellLostError):
        await cluster.to_training(1)
    with pytest.raises(CellLostError):
        await cluster.to_rollout(1)
    await cluster.restart(1)


async def test_a_model_that_does_not_load_stops_the_start(tmp_path, clock):
    broken = make_cluster(tmp_path / "nothing", tmp_path, clock)
    with pytest.raises(ClusterError, match=r"config\.json"):
        await broken.start()


async def saved(cluster: LocalCluster, root: Path) -> Checkpoint:
    folder = await cluster.save(root, step=1, version=cluster.version + 1)
    return load(folder)


def stepped_alone(start: Checkpoint, micros: list[MicroStep]) -> Trainer:
    """The same step by one trainer in this process."""
    trainer = Trainer(start.model, LEARNER, TEMPERATURE)
    trainer.load_optimiser_state(start.optimiser)
    for micro in micros:
        trainer.accumulate(micro)
    trainer.step(2 * len(micros), RATE)
    return trainer


def assert_same_weights(found: Checkpoint, trainer: Trainer) -> None:
    want = dict(trainer.model.named_weights())
    for name, weight in found.model.named_weights():
        torch.testing.assert_close(weight, want[name], atol=1e-6, rtol=0)


async def both_training(cluster: LocalCluster) -> None:
    for cell in (CORE, 1):
        await cluster.to_training(cell)


async def test_two_cells_train_like_one(cluster, tmp_path):
    start = await saved(cluster, tmp_path / "before")
    micros = [micro_step(f"m{i}", seed=i) for i in range(4)]
    await both_training(cluster)
    stats = await asyncio.gather(
        *(cluster.accumulate(i % 2, micro) for i, micro in enumerate(micros))
    )
    step = await cluster.step(1, 8, RATE)
    assert sum(s.trained_tokens for s in stats) == 8 * 16
    assert step.gradient_norm > 0
    trainer = stepped_alone(start, micros)
    assert_same_weights(await saved(cluster, tmp_path / "after"), trainer)


async def test_a_micro_step_that_comes_during_a_step_is_of_the_next(cluster, tmp_path):
    start = await saved(cluster, tmp_path / "before")
    micros = [micro_step("m0", seed=20), micro_step("m1", seed=21)]
    await both_training(cluster)
    await cluster.accumulate(1, micros[0])
    step = asyncio.create_task(cluster.step(1, 2, RATE))
    await asyncio.wait([step], timeout=0)
    await cluster.accumulate(1, micros[1])
    assert step.done()
    await cluster.step(2, 2, RATE)
    trainer = stepped_alone(start, micros[:1])
    trainer.accumulate(micros[1])
    trainer.step(2, RATE)
    assert_same_weights(await saved(cluster, tmp_path / "after"), trainer)


async def test_gradients_of_a_cell_that_left_for_rollout_count(cluster, tmp_path):
    start = await saved(cluster, tmp_path / "before")
    micros = [micro_step(f"m{i}", seed=i) for i in range(2)]
    await both_training(cluster)
    await cluster.accumulate(1, micros[0])
    await cluster.to_rollout(1)
    os.kill(cluster.pid(1), signal.SIGKILL)
    assert await cluster.lost.get() == 1
    assert cluster.undelivered(1) == []
    await cluster.accumulate(CORE, micros[1])
    await cluster.step(1, 4, RATE)
    trainer = stepped_alone(start, micros)
    assert_same_weights(await saved(cluster, tmp_path / "after"), trainer)


async def test_a_cell_killed_in_a_micro_step_changes_nothing_but_who_computes(cluster, tmp_path):
    start = await saved(cluster, tmp_path / "before")
    micros = [micro_step(f"m{i}", seed=10 + i) for i in range(3)]
    await both_training(cluster)
    await cluster.accumulate(1, micros[0])
    os.kill(cluster.pid(1), signal.SIGSTOP)
    running = asyncio.create_task(cluster.accumulate(1, micros[1]))
    await cluster.accumulate(CORE, micros[2])
    os.kill(cluster.pid(1), signal.SIGKILL)
    with pytest.raises(CellLostError):
        await running
    with pytest.raises(CellLostError):
        await cluster.step(1, 6, RATE)
    assert await cluster.lost.get() == 1
    assert cluster.undelivered(1) == ["m0"]
    assert cluster.undelivered(1) == []
    for micro in micros[:2]:
        await cluster.accumulate(CORE, micro)
    await cluster.step(1, 6, RATE)
    trainer = stepped_alone(start, micros)
    assert_same_weights(await saved(cluster, tmp_path / "after"), trainer)


async def test_published_weights_are_the_cores_and_are_served(cluster, tmp_path):
    await cluster.to_training(CORE)
    await cluster.accumulate(CORE, micro_step("m", seed=3))
    await cluster.step(1, 2, RATE)
    version = cluster.version + 1
    checksums = await cluster.publish(version)
    assert set(checksums) == {CORE, 1}
    assert len(set(checksums.values())) == 1
    wanted = request("fresh", tokens=60)
    chunks = await whole(cluster, wanted)
    assert {c.version for c in chunks} == {version}
    await check_logprobs(cluster, tmp_path, wanted, chunks, start=0)


async def test_a_publication_in_mid_call_keeps_its_tokens(cluster, tmp_path):
    await cluster.to_training(CORE)
    await cluster.accumulate(CORE, micro_step("m", seed=4))
    await cluster.step(1, 2, RATE)
    wanted = request("through", tokens=120)
    chunks: list[TokenChunk] = []
    async for chunk in cluster.generate(wanted):
        chunks.append(chunk)
        if len(chunks) == 5:
            await cluster.publish(cluster.version + 1)
    cluster.release("through")
    versions = [c.version for c in chunks for _ in c.token_ids]
    assert len(versions) == 120
    assert versions == sorted(versions)
    assert set(versions) == {cluster.version - 1, cluster.version}
    start = versions.index(cluster.version)
    await check_logprobs(cluster, tmp_path, wanted, chunks, start)


async def check_logprobs(
    cluster: LocalCluster,
    root: Path,
    wanted: GenerateRequest,
    chunks: list[TokenChunk],
    start: int,
) -> None:
    """Log-probabilities from token `start` on are those of a full forward of the core's weights."""
    model = (await saved(cluster, root / "check")).model
    output = [t for c in chunks for t in c.token_ids]
    ids = torch.tensor([*wanted.prompt_ids, *output])
    with torch.no_grad():
        hidden = model.hidden(ids, torch.arange(len(ids)), causal_attend)
        logprobs = model.logits(hidden).log_softmax(-1)
    first = len(wanted.prompt_ids)
    full = [float(logprobs[first + i - 1, t]) for i, t in enumerate(output)]
    recorded = [p for c in chunks for p in c.logprobs]
    assert recorded[start:] == pytest.approx(full[start:], abs=1e-4)


async def test_a_core_that_died_after_a_checkpoint_comes_back_with_its_optimiser(cluster, tmp_path):
    await both_training(cluster)
    await cluster.accumulate(1, micro_step("m0", seed=5))
    await cluster.step(1, 2, RATE)
    start = await saved(cluster, tmp_path / "before")
    await kill_core(cluster)
    await cluster.restart(CORE)
    await cluster.to_training(CORE)
    micros = [micro_step("m1", seed=6), micro_step("m2", seed=7)]
    for cell, micro in enumerate(micros):
        await cluster.accumulate(cell, micro)
    await cluster.step(2, 4, RATE)
    trainer = stepped_alone(start, micros)
    assert_same_weights(await saved(cluster, tmp_path / "after"), trainer)


async def test_a_restarted_core_saves_though_what_it_came_from_is_dropped(
    cluster, tmp_path, start_folder
):
    await cluster.save(tmp_path, step=1, version=2, keep=1)
    shutil.rmtree(start_folder)
    await kill_core(cluster)
    await cluster.restart(CORE)
    await cluster.save(tmp_path, step=2, version=2, keep=1)
    folder = await cluster.save(tmp_path, step=3, version=2, keep=1)
    assert [folder] == [p for p in tmp_path.iterdir() if p.is_dir()]
    load(folder)


async def kill_core(cluster: LocalCluster) -> None:
    os.kill(cluster.pid(CORE), signal.SIGKILL)
    assert await cluster.lost.get() == CORE


async def test_what_killed_runs_left_in_shared_memory_is_removed(tmp_path):
    live = ShmDir(tmp_path / "opengyre-live")
    (tmp_path / "opengyre-dead").mkdir()
    (tmp_path / "opengyre-dead" / "weights-0").write_bytes(b"x")
    (tmp_path / "foreign").mkdir()
    remove_stale(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["foreign", "opengyre-live"]
    live.close()


async def test_a_micro_step_needs_a_training_cell(cluster):
    with pytest.raises(ClusterError, match="in training"):
        await cluster.accumulate(1, micro_step("m", seed=1))
