"""Evaluation without training: one pass over the held-out tasks."""

import asyncio

from opengyre.app.heldout import Evaluation, HeldOut
from opengyre.app.keeping import kept_cells
from opengyre.app.paths import RunPaths
from opengyre.app.rollouts import Rollouts
from opengyre.app.sources import heldout_tasks, policy_folder
from opengyre.app.train import Start, World, open_site
from opengyre.config.run import RunConfig


async def evaluate_policy(
    config: RunConfig, paths: RunPaths, world: World, *, greedy: bool
) -> Evaluation:
    """Pass@1 of policy.model on tasks.heldout through the harness."""
    try:
        tasks = heldout_tasks(config, paths.folder)
        start = Start(policy_folder(config))
        async with open_site(config, paths, world, start) as site, asyncio.TaskGroup() as group:
            rollouts = Rollouts(site.shop, group, site.room)
            held = HeldOut(config, tasks, rollouts, site.history, site.store, world.clock)
            async with kept_cells(site.cluster, site.history, group, rollouts.fill):
                return await held.evaluate("evaluation", start.version, start.step, greedy=greedy)
    finally:
        paths.remove_private()
