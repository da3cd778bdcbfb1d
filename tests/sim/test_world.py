"""Whatever happens, a simulation ends, counts everything once, and is the same again."""

import gc
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.config.run import PolicyName
from opengyre.core.reasons import CellRole
from opengyre.sim.world import Setting, World, simulate
from tests.sim.made import load, machine, plan, plans

loads = st.builds(
    load,
    calls=st.sampled_from([1.0, 4.0]),
    answer_tokens=st.just(30.0),
    observation_tokens=st.just(50.0),
    first_prompt_tokens=st.just(100.0),
    tool_s=st.sampled_from([0.0, 5.0]),
    tool_spread=st.sampled_from([0.0, 1.2]),
    task_spread=st.just(0.3),
    member_spread=st.just(0.4),
    limit_s=st.sampled_from([math.inf, 20.0]),
    limit_counts_pauses=st.booleans(),
    evaluation_s=st.sampled_from([0.0, 1.0]),
    excluded_share=st.just(0.1),
    no_spread_share=st.just(0.2),
)
machines = st.builds(
    machine,
    decode_full_tokens_s=st.just(60.0),
    prefill_tokens_s=st.just(6000.0),
    train_tokens_s=st.just(2000.0),
    micro_step_tokens=st.sampled_from([200.0, 5000.0]),
    step_s=st.sampled_from([0.0, 1.0]),
    publish_s=st.sampled_from([0.0, 1.0]),
    to_training_s=st.sampled_from([0.0, 0.8]),
    to_rollout_s=st.just(0.3),
    restart_s=st.sampled_from([0.1, 5.0]),
    mean_life_s=st.sampled_from([60.0, 300.0, math.inf]),
    moves_kv=st.booleans(),
    kv_move_tokens_s=st.sampled_from([100.0, math.inf]),
)
policies = st.sampled_from(["elastic", "forecast", "colocate", "async"])
worlds = st.builds(
    Setting,
    plan=plans(standalone=[0, 2]),
    policy=policies,
    workload=loads,
    machine=machines,
    seed=st.integers(0, 1000),
    streaming=st.booleans(),
    log=st.just(True),
)


@given(worlds)
@settings(max_examples=60)
def test_every_world_ends_and_counts_each_execution_once(setting: Setting) -> None:
    outcome = simulate(setting)
    assert len(outcome.steps) == 4
    assert outcome.steps == sorted(outcome.steps)
    assert outcome.tally.executions >= 4 * 2 * 3
    assert sum(map(len, outcome.executions_s)) <= outcome.tally.executions
    assert outcome.staleness is not None
    assert outcome.staleness.versions.max <= setting.plan.staleness_bound
    if setting.workload.limit_s == math.inf:
        assert outcome.tally.truncated == 0


@given(worlds)
@settings(max_examples=10)
def test_the_same_seed_gives_the_same_log(setting: Setting) -> None:
    one, two = simulate(setting), simulate(setting)
    assert one.log == two.log
    assert one.log
    assert one.steps == two.steps


@given(worlds)
@settings(max_examples=10)
def test_a_world_makes_no_cycles_so_nothing_waits_for_the_garbage_collector(
    setting: Setting,
) -> None:
    world = World(setting)
    gc.collect()
    gc.disable()
    try:
        world.run()
        found = gc.collect()
    finally:
        gc.enable()
    assert found == 0


def test_a_time_limit_is_kept_to_the_second() -> None:
    limited = load(calls=50.0, tool_s=10.0, limit_s=33.0)
    outcome = simulate(Setting(plan=plan(), policy="elastic", workload=limited, machine=machine()))
    assert outcome.executions_s == [[33.0, 33.0]]
    assert outcome.tally.truncated == 2


@pytest.mark.parametrize("counts", [True, False])
def test_a_clock_that_stands_still_in_pauses_spares_the_executions(counts: bool) -> None:
    """Colocate holds the second burst's calls for 30 s while the first one's are trained."""
    setting = Setting(
        plan=plan(total_steps=3, staleness_steps=2, cells=(6, 6)),
        policy="colocate",
        workload=load(
            calls=3.0, tool_s=1.0, task_spread=0.5, limit_s=60.0, limit_counts_pauses=counts
        ),
        machine=machine(train_tokens_s=5.0),
        seed=0,
    )
    outcome = simulate(setting)
    longest = max(seconds for group in outcome.executions_s for seconds in group)
    assert (longest <= 60.0) is counts
    assert outcome.tally.held_calls > 0


def test_elastic_cells_take_turns_and_come_back() -> None:
    setting = Setting(
        plan=plan(total_steps=3, group_size=4, cells=(2, 2, 2)),
        policy="elastic",
        workload=load(calls=6.0, member_spread=0.5, tool_s=4.0),
        machine=machine(train_tokens_s=50.0, to_training_s=1.0, to_rollout_s=1.0),
        seed=1,
    )
    outcome = simulate(setting)
    trained = {change.cell for change in outcome.roles if change.role is CellRole.TRAINING}
    assert trained
    last = {change.cell: change.role for change in outcome.roles}
    assert set(last.values()) == {CellRole.ROLLOUT}
    again = simulate(replace(setting, seed=2))
    assert again.steps != outcome.steps


def test_names_of_policies_are_those_of_the_configuration() -> None:
    names: list[PolicyName] = ["elastic", "forecast", "colocate", "async"]
    for name in names:
        outcome = simulate(Setting(plan=plan(), policy=name, workload=load(), machine=machine()))
        assert outcome.seconds == pytest.approx(10.0)
