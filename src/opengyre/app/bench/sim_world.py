"""The worlds that the bench of the simulator plays.

Invariant: every one has the same cells, agents and policy and as many executions a cell, so what is
measured in them differs by their size alone.
"""

from opengyre.scheduler.base import SchedulePlan
from opengyre.sim.workload import Machine, Workload
from opengyre.sim.world import Setting

PLACES = 8
"""Of a cell. With GROUP of 4, mu = phi = 1 and a group a cell, all places are taken."""
GROUP = 4
LOAD = Workload(
    calls=6.0,
    answer_tokens=300.0,
    observation_tokens=700.0,
    first_prompt_tokens=2000.0,
    tool_s=5.0,
    task_spread=0.3,
    member_spread=0.4,
    answer_spread=0.5,
    tool_spread=1.0,
    evaluation_s=1.0,
    limit_s=1000.0,
)
"""Everything that costs an event happens: queues, tools, prompts, a limit, verdicts."""
CELL = Machine(
    decode_alone_tokens_s=60.0,
    decode_full_tokens_s=200.0,
    prefill_tokens_s=6000.0,
    train_tokens_s=500.0,
    micro_step_tokens=8000.0,
    step_s=1.0,
    publish_s=1.0,
    kv_move_tokens_s=1e5,
)
"""Switches take no time: as they come one by one, a large world could else train less."""


def bench_setting(cells: int, steps: int, seed: int) -> Setting:
    """A world of so many cells; each has 4 executions a step."""
    plan = SchedulePlan(
        cells=(PLACES,) * cells,
        group_size=GROUP,
        groups_per_step=cells,
        steps_per_burst=1,
        staleness_steps=1,
        total_steps=steps,
    )
    return Setting(plan=plan, policy="elastic", workload=LOAD, machine=CELL, seed=seed)
