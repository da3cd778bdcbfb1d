import asyncio

from hypothesis import given
from hypothesis import strategies as st

from opengyre.app.steps import StepResult, StepRunner
from opengyre.cluster.fake import FakeCluster
from opengyre.config.load import parse_config
from opengyre.config.run import RunConfig
from opengyre.core.fakes import CountingIds, FakeClock
from opengyre.core.reasons import Role
from opengyre.core.records import ExecutionSample, MicroStep, Trajectory
from opengyre.learner.stats import MicroStats, StepStats
from opengyre.tree.weigh import GroupSamples


def a_config(steps: int = 3) -> RunConfig:
    return parse_config(
        {
            "run": {"steps": steps},
            "policy": {"model": "m", "context_tokens": 128, "max_new_tokens": 8},
            "tasks": {"train": "t", "heldout": "h"},
            "learner": {"learning_rate": 1.0, "final_learning_rate_share": 0.5},
            "cells": {"token_budget": 128, "count": 3},
        }
    )


def a_group(number: int, members: int) -> GroupSamples:
    """Trajectories of 100 tokens each: a budget of 128 gives a micro-step to each."""
    samples = [
        ExecutionSample(
            execution_id=f"g{number}-{i}",
            group_id=f"g{number}",
            advantage=1.0,
            reward=1.0,
            trajectories=[
                Trajectory(
                    leaf_call_id="c",
                    role=Role.MAIN,
                    token_ids=[number, i, *range(98)],
                    owned=[50],
                    behaviour_logprobs=[-1.0],
                )
            ],
            oldest_version=0,
        )
        for i in range(members)
    ]
    return GroupSamples(samples, {}, 0.5, spread=bool(samples), scored=members)


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    losses=st.lists(st.integers(0, 12), max_size=3),
)
def test_every_micro_step_counts_once_whatever_satellites_are_lost(
    sizes: list[int], losses: list[int]
) -> None:
    asyncio.run(_run(sizes, losses))


async def _run(sizes: list[int], losses: list[int]) -> None:
    cluster = FakeCluster(3, lambda request: [1], FakeClock())
    await cluster.start()
    runner = StepRunner(a_config(), cluster, FakeClock(), CountingIds())
    results: list[StepResult] = []

    async def ended(result: StepResult) -> None:
        results.append(result)

    async with asyncio.TaskGroup() as tasks:
        for cell in (0, 1, 2):
            await cluster.to_training(cell)
            runner.start(cell, tasks)
        for number, size in enumerate(sizes):
            runner.admit(a_group(number, size), step=0)
        closing = tasks.create_task(runner.close(0, ended))
        alive = [1, 2]
        for wait in sorted(losses)[: len(alive)]:
            for _ in range(wait):
                await asyncio.sleep(0)  # noqa: TID251 — lets the workers take a turn
            if not results:
                cell = alive.pop()
                cluster.lose(cell)
                runner.lost(cell)
        await closing
        for cell in (0, *alive):
            await runner.stop(cell)
    (result,) = results
    assert result.executions == sum(sizes)
    assert len(cluster.micro_ids) == len(set(cluster.micro_ids)) == sum(sizes)
    assert (result.stats is None) == (sum(sizes) == 0)
    assert sum(m.trained_tokens for m in result.micros) == sum(sizes)


async def test_the_learning_rate_falls_linearly_to_its_last_share() -> None:
    cluster = FakeCluster(2, lambda request: [1], FakeClock())
    await cluster.start()
    runner = StepRunner(a_config(steps=3), cluster, FakeClock(), CountingIds())

    async def ended(result: StepResult) -> None:
        pass

    async with asyncio.TaskGroup() as tasks:
        await cluster.to_training(0)
        runner.start(0, tasks)
        for step in range(3):
            runner.admit(a_group(step, 2), step)
            await runner.close(step, ended)
        await runner.stop(0)
    assert [s.learning_rate for s in cluster.steps] == [1.0, 0.75, 0.5]


class TimedCluster(FakeCluster):
    """A micro-step takes two seconds of the clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(2, lambda _request: [1], clock)
        self._time = clock

    async def accumulate(self, cell: int, micro: MicroStep) -> MicroStats:
        self._time.advance(2.0)
        return await super().accumulate(cell, micro)


async def test_a_step_says_how_many_seconds_its_micro_steps_took_and_waiting_does_not_count() -> (
    None
):
    clock = FakeClock()
    cluster = TimedCluster(clock)
    await cluster.start()
    runner = StepRunner(a_config(), cluster, clock, CountingIds())
    computed = []

    async def ended(result: StepResult) -> None:
        computed.append(result.computed_s)

    async with asyncio.TaskGroup() as tasks:
        await cluster.to_training(0)
        runner.start(0, tasks)
        for step, size in enumerate((2, 0, 3)):
            clock.advance(100.0)
            runner.admit(a_group(step, size), step)
            await runner.close(step, ended)
        await runner.stop(0)
    assert computed == [4.0, 0.0, 6.0]


class SlowCluster(FakeCluster):
    """Takes some turns of the event loop for a micro-step."""

    computed = 0

    async def accumulate(self, cell: int, micro: MicroStep) -> MicroStats:
        for _ in range(5):
            await asyncio.sleep(0)  # noqa: TID251 — a turn of the event loop
        self.computed += 1
        return await super().accumulate(cell, micro)


async def test_a_cell_that_leaves_in_mid_step_finishes_what_it_has_in_hand() -> None:
    cluster = SlowCluster(2, lambda request: [1], FakeClock())
    await cluster.start()
    runner = StepRunner(a_config(), cluster, FakeClock(), CountingIds())
    results: list[StepResult] = []

    async def ended(result: StepResult) -> None:
        results.append(result)

    async with asyncio.TaskGroup() as tasks:
        await cluster.to_training(0)
        runner.start(0, tasks)
        runner.admit(a_group(0, 4), 0)
        closing = tasks.create_task(runner.close(0, ended))
        for _ in range(3):
            await asyncio.sleep(0)  # noqa: TID251 — the worker takes its first micro-step
        await runner.stop(0)
        assert not results
        assert cluster.computed == 1
        runner.start(0, tasks)
        await closing
        await runner.stop(0)
    assert len(cluster.micro_ids) == len(set(cluster.micro_ids)) == 4


class GatedCluster(SlowCluster):
    """Begins a step when the gate opens, as one that waits for a cell to change role."""

    def __init__(self) -> None:
        super().__init__(2, lambda request: [1], FakeClock())
        self.gate = asyncio.Event()

    async def step(self, step: int, executions: int, learning_rate: float) -> StepStats:
        await self.gate.wait()
        return await super().step(step, executions, learning_rate)


async def _lose_what_was_whole(cluster: FakeCluster, *, core_waits: bool) -> None:
    """The satellite computes all of a step and dies before its gradients are gathered."""
    await cluster.start()
    runner = StepRunner(a_config(), cluster, FakeClock(), CountingIds())

    async def ended(result: StepResult) -> None:
        assert result.cells == [0]

    async def turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)  # noqa: TID251 — turns of the event loop

    async with asyncio.TaskGroup() as tasks:
        await cluster.to_training(1)
        runner.start(1, tasks)
        runner.admit(a_group(0, 3), 0)
        closing = tasks.create_task(runner.close(0, ended))
        await turns()
        await cluster.to_training(0)
        if not core_waits:
            runner.start(0, tasks)
            await turns()
        cluster.lose(1)
        runner.lost(1)
        if core_waits:
            runner.start(0, tasks)
        if isinstance(cluster, GatedCluster):
            cluster.gate.set()
        await closing
        await runner.stop(0)
    assert len(cluster.micro_ids) == len(set(cluster.micro_ids)) == 3


async def test_a_whole_step_that_loses_a_cell_before_the_core_trains_is_made_whole_again() -> None:
    await _lose_what_was_whole(FakeCluster(2, lambda request: [1], FakeClock()), core_waits=True)


async def test_a_step_that_loses_a_cell_before_its_gradients_are_gathered_waits_for_them() -> None:
    await _lose_what_was_whole(GatedCluster(), core_waits=False)
