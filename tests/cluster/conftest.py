"""A tiny random Qwen3, and one cluster of two real cells for a whole module."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from opengyre.cluster.base import CORE, Cluster
from opengyre.cluster.local import LocalCluster
from opengyre.config.run import CellsSection, LearnerSection
from opengyre.core.reasons import CellRole, Role
from opengyre.core.records import (
    ExecutionSample,
    GenerateRequest,
    MicroStep,
    Sampling,
    TokenChunk,
    Trajectory,
)
from opengyre.learner.policy import new_policy

TEMPERATURE = 1.0
CONTEXT = 1024
LEARNER = LearnerSection(clip_low=0.2, clip_high=0.2)
TINY: dict[str, object] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


class HandClock:
    """Time that a test moves by hand."""

    def __init__(self) -> None:
        self._now = 0.0
        self._tick = asyncio.Event()

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._tick.set()
        self._tick = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        until = self._now + seconds
        while self._now < until:
            await self._tick.wait()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    new_policy(TINY, 7, folder)
    return folder


def make_cluster(model: Path, run: Path, clock: HandClock, count: int = 2) -> LocalCluster:
    return LocalCluster(
        CellsSection(count=count, capacity=4, kv_tokens=8192, block_tokens=8),
        LEARNER,
        model,
        run,
        temperature=TEMPERATURE,
        context_tokens=CONTEXT,
        version=1,
        clock=clock,
    )


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module")
def start_folder(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's cluster started; a test may remove it, as a resumed run does in time."""
    return shutil.copytree(tiny, tmp_path_factory.mktemp("start") / "model")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    start_folder: Path, tmp_path_factory: pytest.TempPathFactory, clock: HandClock
) -> AsyncIterator[LocalCluster]:
    cluster = make_cluster(start_folder, tmp_path_factory.mktemp("run"), clock)
    surface: Cluster = cluster
    await surface.start()
    yield cluster
    await cluster.close()


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(running: LocalCluster) -> AsyncIterator[LocalCluster]:
    """The module's cluster with every cell in rollout, of the newest weights, before and after."""
    yield running
    for cell, role in enumerate(running.roles):
        if role is CellRole.LOST:
            assert cell != CORE
            await running.restart(cell)
        elif role is CellRole.TRAINING:
            await running.to_rollout(cell)
    await running.resume()
    await running.publish(running.version + 1)
    assert set(running.roles) == {CellRole.ROLLOUT}


def request(name: str, *, execution: str = "", tokens: int = 120, seed: int = 1) -> GenerateRequest:
    prompt = [(seed * 7 + i * i) % 60 + 1 for i in range(40)]
    return GenerateRequest(
        request_id=name,
        execution_id=execution or name,
        prompt_ids=prompt,
        sampling=Sampling(max_new_tokens=tokens, stop_ids=[], seed=seed),
    )


async def whole(cluster: LocalCluster, wanted: GenerateRequest) -> list[TokenChunk]:
    """A call that is its execution's last."""
    try:
        return [chunk async for chunk in cluster.generate(wanted)]
    finally:
        cluster.release(wanted.execution_id)


def tokens_of(chunks: list[TokenChunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def micro_step(name: str, seed: int, step: int = 0) -> MicroStep:
    prompt = [(seed * 5 + i) % 60 + 1 for i in range(12)]
    samples = [
        ExecutionSample(
            execution_id=f"{name}-{k}",
            group_id=name,
            advantage=1.0 if k else -1.0,
            reward=float(k),
            trajectories=[
                Trajectory(
                    leaf_call_id=f"{name}-{k}",
                    role=Role.MAIN,
                    token_ids=prompt + [(seed + k * 11 + i * 3) % 60 + 1 for i in range(16)],
                    owned=list(range(12, 28)),
                    behaviour_logprobs=[-4.1] * 16,
                )
            ],
            oldest_version=1,
        )
        for k in range(2)
    ]
    return MicroStep(
        micro_id=name, step=step, samples=samples, packed_tokens=44, expanded_tokens=56
    )
