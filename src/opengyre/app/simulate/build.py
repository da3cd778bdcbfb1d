"""From a set's values to a plan, a workload and a machine.

The values are shares and ratios, since those decide the speed-ups; here they become rates. With E the
nominal seconds of an execution on full cells, c the places of a cell, N the group size:

    places        c = capacity_share * (mu + phi) * B * N / cells
    tools         tool_share * E, between the calls
    service       (1 - tool_share) * E / calls seconds a call, on a cell with c * (1 - tool_share) calls
    alone         a call decodes `slowdown` times as fast
    training      of a step takes training_share / (1 - training_share) times the cell time
                  B * N * E / c that its executions occupy
"""

from dataclasses import dataclass, replace

from opengyre.app.simulate.presets import Values
from opengyre.scheduler.base import SchedulePlan
from opengyre.sim.workload import Machine, Workload

HOUR_S = 3600.0
FIRST_PROMPT_SHARE = 0.02
"""Of an execution's tokens: system prompt, tools and task. 14k of 700k is what agent programs send."""
LEAST_SLOWDOWN = 1.05
"""A cell has some limit, else its prompts would cost nothing."""


@dataclass(frozen=True)
class Scene:
    """All of a simulation but its policy and seed."""

    plan: SchedulePlan
    workload: Workload
    machine: Machine

    def with_plan(self, **changes: int) -> "Scene":
        """The same cells and agents under another plan."""
        return replace(self, plan=replace(self.plan, **changes))  # type: ignore[arg-type]


def build(values: Values) -> Scene:
    """A scene."""
    plan = _plan(values)
    workload = _workload(values)
    return Scene(plan, workload, _machine(values, plan, workload))


def nominal_s(values: Values) -> float:
    """E."""
    return values["nominal_h"] * HOUR_S * values["length"]


def _plan(values: Values) -> SchedulePlan:
    steps = int(values["steps_per_burst"] + values["staleness_steps"])
    outstanding = steps * int(values["groups_per_step"]) * int(values["group_size"])
    cells = int(values["cells"])
    places = max(1, round(values["capacity_share"] * outstanding / cells))
    return SchedulePlan(
        cells=(places,) * cells,
        group_size=int(values["group_size"]),
        groups_per_step=int(values["groups_per_step"]),
        steps_per_burst=int(values["steps_per_burst"]),
        staleness_steps=int(values["staleness_steps"]),
        total_steps=int(values["total_steps"]),
    )


def _workload(values: Values) -> Workload:
    tokens, calls = values["execution_tokens"] * values["length"], values["calls"]
    first = FIRST_PROMPT_SHARE * tokens
    turn = (tokens - first) / calls
    return Workload(
        calls=calls,
        answer_tokens=turn * values["answer_share"],
        observation_tokens=turn * (1.0 - values["answer_share"]),
        first_prompt_tokens=first,
        tool_s=nominal_s(values) * values["tool_share"] / (calls - 1.0),
        task_spread=values["task_spread"],
        member_spread=values["member_spread"],
        answer_spread=values["answer_spread"],
        tool_spread=values["tool_spread"],
        limit_s=values["limit_h"] * HOUR_S,
        evaluation_s=values["evaluation_s"],
    )


def _machine(values: Values, plan: SchedulePlan, load: Workload) -> Machine:
    nominal, places = nominal_s(values), plan.cells[0]
    prompts = values["prefill_share"]
    service = nominal * (1.0 - values["tool_share"]) / values["calls"]
    slowdown = max(LEAST_SLOWDOWN, values["slowdown"])
    alone = slowdown * load.answer_tokens / (1.0 - prompts) / service
    beside = max(1.0, places * (1.0 - values["tool_share"]) - 1.0)
    full = beside * alone / (slowdown - 1.0)
    weight = load.answer_tokens / load.observation_tokens * prompts / (1.0 - prompts)
    executions = plan.groups_per_step * plan.group_size
    balance = values["training_share"] / (1.0 - values["training_share"])
    training_s = executions * nominal / places * balance
    tokens = values["execution_tokens"] * values["length"]
    return Machine(
        decode_alone_tokens_s=alone,
        decode_full_tokens_s=full,
        prefill_tokens_s=full / weight if weight else float("inf"),
        train_tokens_s=executions * tokens / training_s,
        micro_step_tokens=values["micro_step_share"] * tokens,
        step_s=values["step_s"],
        publish_s=values["publish_s"],
        to_training_s=values["to_training_s"],
        to_rollout_s=values["to_rollout_s"],
        kv_move_tokens_s=values["kv_move_tokens_s"],
    )
