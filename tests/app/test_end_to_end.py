"""The whole of it, real: Claude Code in its sandbox, cells as processes, a policy, a database."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
import torch

from opengyre.app.paths import RunPaths
from opengyre.app.summary import ledger_of
from opengyre.app.train import Outcome, Site, World, train
from opengyre.app.wall import RandomIds, WallClock
from opengyre.config.load import parse_config
from opengyre.config.run import RunConfig
from opengyre.core.reasons import CellRole, VerdictKind
from opengyre.model.folder import load_model
from opengyre.store.rows import GroupState
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree

SATELLITE = 1


def a_config(policy: Path, folder: Path) -> RunConfig:
    return parse_config(
        {
            "run": {"name": "e2e", "folder": str(folder), "steps": 2},
            "policy": {
                "model": str(policy),
                "tool_style": "signature",
                "context_tokens": 768,
                "max_new_tokens": 64,
            },
            "tasks": {
                "train": "bundled:repair",
                "heldout": "bundled:repair",
                "train_count": 8,
                "heldout_count": 4,
            },
            "harness": {
                "args": ["--bare", "--tools", "Bash", "--system-prompt", "Work in this folder."],
                "timeout_s": 60,
                "overall_timeout_s": 120,
            },
            "cells": {"count": 2, "capacity": 2, "kv_tokens": 8192},
            "schedule": {
                "group_size": 2,
                "groups_per_step": 2,
                "steps_per_burst": 1,
                "staleness_steps": 1,
            },
            "learner": {"learning_rate": 1e-3},
        }
    )


class Saboteur:
    """Moves a cell away under a live stream, then kills it while the run trains."""

    def __init__(self) -> None:
        self.moved_in_mid_stream = 0
        self.killed = False
        self.tasks: set[asyncio.Task[None]] = set()

    def opened(self, site: Site) -> None:
        for work in (self._switch(site), self._kill(site)):
            task = asyncio.create_task(work)
            self.tasks.add(task)

    async def _switch(self, site: Site) -> None:
        """In the evaluation before training, when the scheduler moves nothing itself."""
        while not self.moved_in_mid_stream:
            if site.cluster.in_flight(SATELLITE) and site.history.figures.phase == "before":
                report = await site.cluster.to_training(SATELLITE)
                self.moved_in_mid_stream += report.moved_with_kv
                await site.cluster.to_rollout(SATELLITE)
            await asyncio.sleep(0.01)  # noqa: TID251 — a test waits for real processes

    async def _kill(self, site: Site) -> None:
        while not self.killed:
            training = site.history.figures.phase == "training"
            serving = site.cluster.roles[SATELLITE] is CellRole.ROLLOUT
            if training and serving and site.cluster.in_flight(SATELLITE):
                os.kill(site.cluster.pid(SATELLITE), signal.SIGKILL)
                self.killed = True
            await asyncio.sleep(0.01)  # noqa: TID251 — a test waits for real processes


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_two_bursts_survive_a_forced_switch_and_a_killed_satellite(
    policy: Path, tmp_path: Path
) -> None:
    config = a_config(policy, tmp_path)
    paths = RunPaths.make(tmp_path / "run")
    saboteur = Saboteur()
    world = World(WallClock(), RandomIds(), lambda _: None, saboteur.opened)
    outcome = await train(config, paths, world, resume=False)
    assert saboteur.moved_in_mid_stream >= 1
    assert saboteur.killed
    with RunStore(paths.store) as store:
        check_store(store, config, outcome)
    checkpoint = sorted(paths.checkpoints.glob("step-*"))[-1]
    before, after = load_model(policy), load_model(checkpoint)
    pairs = zip(before.named_weights(), after.named_weights(), strict=True)
    assert any(not torch.equal(a, b) for (_, a), (_, b) in pairs) or no_gradient(paths)
    assert not paths.private.exists()


def check_store(store: RunStore, config: RunConfig, outcome: Outcome) -> None:
    """What must hold of every run's record."""
    assert outcome.tally.harness_visible_errors == 0
    assert outcome.moved_with_kv + outcome.recomputed >= 1
    assert [row.step for row in store.steps()] == [1, 2]
    assert len(store.events("published")) == 2
    records = store.executions()
    assert {r.verdict.kind for r in records} == {VerdictKind.SCORED}
    training = [r for r in records if r.split == "train"]
    consumed = [g for g in store.groups() if g.state is GroupState.CONSUMED]
    assert len(consumed) == 4
    assert len({r.member for r in training}) == len(training)
    assert len(training) == len(store.groups()) * config.schedule.group_size
    assert ledger_of(store)["balanced"] is True
    sampled = 0
    for record in training:
        tree = ExecutionTree(store.calls(record.execution_id))
        tree.check()
        sampled += sum(len(call.output_ids) for call in tree.calls)
    assert ledger_of(store)["sampled"] == sampled


def no_gradient(paths: RunPaths) -> bool:
    """True when every group of the run was without spread: then no step changes weights."""
    with RunStore(paths.store) as store:
        return all(row.executions == 0 for row in store.steps())
