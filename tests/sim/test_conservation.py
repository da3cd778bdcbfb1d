"""Whatever moves, waits or is lost: tokens are served once, seconds add up, work is trained once."""

import math
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.core.reasons import CellRole
from opengyre.sim.cells import SimCell
from opengyre.sim.kernel import Kernel, SimulationError
from opengyre.sim.outcome import Outcome, RoleChange
from opengyre.sim.placement import Placement
from opengyre.sim.world import Setting, simulate
from tests.sim.made import load, machine, plan

SPEED, PREFILL, TRAIN = 50.0, 4000.0, 300.0
"""A cell is one server of constant speed, so that its busy time tells what it served."""
ANSWER, TOOL, START, STOP = 30.0, 4.0, 1.0, 0.5

SETTINGS = st.builds(
    Setting,
    plan=st.builds(
        plan,
        cells=st.sampled_from([(2, 2), (8, 8, 8), (3, 3, 3, 3, 3)]),
        group_size=st.just(3),
        groups_per_step=st.just(2),
        steps_per_burst=st.sampled_from([1, 3]),
        staleness_steps=st.sampled_from([0, 1, 4]),
        total_steps=st.just(4),
    ),
    policy=st.sampled_from(["elastic", "forecast", "colocate", "async"]),
    workload=st.builds(
        load,
        calls=st.sampled_from([1.0, 6.0]),
        answer_tokens=st.just(ANSWER),
        observation_tokens=st.just(50.0),
        first_prompt_tokens=st.just(100.0),
        tool_s=st.just(TOOL),
        task_spread=st.just(0.4),
        member_spread=st.just(0.5),
        start_s=st.just(START),
        stop_s=st.just(STOP),
        evaluation_s=st.sampled_from([0.0, 2.0]),
    ),
    machine=st.builds(
        machine,
        decode_alone_tokens_s=st.just(SPEED),
        decode_full_tokens_s=st.just(SPEED),
        prefill_tokens_s=st.just(PREFILL),
        train_tokens_s=st.just(TRAIN),
        micro_step_tokens=st.sampled_from([200.0, 5000.0]),
        step_s=st.sampled_from([0.0, 1.0]),
        publish_s=st.sampled_from([0.0, 1.0]),
        to_training_s=st.sampled_from([0.0, 0.8]),
        to_rollout_s=st.just(0.3),
        restart_s=st.sampled_from([0.1, 5.0]),
        mean_life_s=st.sampled_from([60.0, 300.0, math.inf]),
        moves_kv=st.booleans(),
        kv_move_tokens_s=st.sampled_from([100.0, math.inf]),
        publish_drops_prefixes=st.booleans(),
    ),
    seed=st.integers(0, 10**6),
    streaming=st.booleans(),
)
EXECUTIONS = 4 * 2 * 3


@given(SETTINGS)
@settings(max_examples=40)
def test_every_token_and_every_second_is_accounted_for(setting: Setting) -> None:
    outcome = simulate(setting)
    tally = outcome.tally
    assert tally.executions == EXECUTIONS
    assert [len(group) for group in outcome.executions_s] == [3] * 8
    served = tally.sampled_tokens + tally.prefilled_tokens * SPEED / PREFILL
    assert outcome.rollout_busy_s * SPEED == pytest.approx(served)
    assert outcome.training_busy_s * TRAIN == pytest.approx(tally.trained_tokens)
    calls = tally.sampled_tokens / ANSWER
    outside = (calls - EXECUTIONS) * TOOL + EXECUTIONS * (START + STOP)
    lived = sum(map(sum, outcome.executions_s))
    assert lived == pytest.approx(outcome.calls_s + tally.held_s + outside)
    contexts = calls * (ANSWER + 50.0) + EXECUTIONS * (100.0 - 50.0)
    assert tally.trained_tokens == pytest.approx(contexts)
    _check_waterlevel(outcome)
    _check_roles(outcome, setting)
    _check_moves(outcome, setting)


def _check_waterlevel(outcome: Outcome) -> None:
    """A group more, or an execution less; nobody in the end."""
    levels = [0, *(level for _, level in outcome.waterlevel)]
    changes = Counter(after - before for before, after in pairwise(levels))
    assert changes.pop(-1) == EXECUTIONS
    assert sum(change * times for change, times in changes.items()) == EXECUTIONS
    assert levels[-1] == 0
    assert [at for at, _ in outcome.waterlevel] == sorted(at for at, _ in outcome.waterlevel)


AFTER = {
    CellRole.ROLLOUT: {CellRole.SWITCHING, CellRole.LOST},
    CellRole.SWITCHING: {CellRole.ROLLOUT, CellRole.TRAINING, CellRole.LOST},
    CellRole.TRAINING: {CellRole.SWITCHING, CellRole.LOST},
    CellRole.LOST: {CellRole.ROLLOUT},
}


def _check_roles(outcome: Outcome, setting: Setting) -> None:
    """Each cell begins in rollout and does only what its role allows; a lost one is back after its
    restart; the optimiser steps while the core trains."""
    lost, end = 0, max(outcome.published[-1], outcome.roles[-1].at)
    spent: Counter[CellRole] = Counter()
    for cell in range(len(setting.plan.cells)):
        changes = [change for change in outcome.roles if change.cell == cell]
        assert (changes[0].at, changes[0].role) == (0.0, CellRole.ROLLOUT)
        for before, after in pairwise(changes):
            assert after.role in AFTER[before.role]
            if before.role is CellRole.LOST:
                assert after.at - before.at == pytest.approx(setting.machine.restart_s)
        lost += sum(change.role is CellRole.LOST for change in changes)
        for before, after in pairwise([*changes, RoleChange(end, cell, CellRole.LOST)]):
            spent[before.role] += after.at - before.at
    assert lost == outcome.tally.cells_lost
    assert lost == 0 or math.isfinite(setting.machine.mean_life_s)
    assert outcome.rollout_busy_s <= spent[CellRole.ROLLOUT] + 1e-6
    # a cell that is called back ends its micro-step first
    training = spent[CellRole.TRAINING] + spent[CellRole.SWITCHING]
    assert outcome.training_busy_s <= training + 1e-6
    core = [change for change in outcome.roles if change.cell == 0]
    for at in outcome.steps:
        before = [change.role for change in core if change.at < at]
        held = {before[-1], *(change.role for change in core if change.at == at)}
        assert CellRole.TRAINING in held


def _check_moves(outcome: Outcome, setting: Setting) -> None:
    tally = outcome.tally
    assert tally.held_calls or not tally.moved_with_kv + tally.recomputed
    assert setting.machine.moves_kv or not tally.moved_with_kv
    at_once = not setting.machine.moves_kv or math.isinf(setting.machine.kv_move_tokens_s)
    if setting.policy in {"elastic", "forecast"} and not tally.cells_lost and at_once:
        assert tally.held_s == 0.0, "elastic makes no live call wait for a place"
        assert not setting.machine.moves_kv or not tally.recomputed


@given(SETTINGS)
@settings(max_examples=5)
def test_another_seed_is_another_world_and_a_log_changes_nothing(setting: Setting) -> None:
    plain, logged = simulate(setting), simulate(replace(setting, log=True))
    assert (plain.steps, plain.tally, plain.events) == (logged.steps, logged.tally, logged.events)
    assert not plain.log
    other = simulate(replace(setting, seed=setting.seed + 1))
    assert other.executions_s != plain.executions_s


@given(
    capacities=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    moves=st.lists(st.tuples(st.sampled_from("ocar"), st.integers(0, 4)), max_size=60),
)
def test_the_best_cell_is_the_one_that_looking_at_all_of_them_finds(
    capacities: list[int], moves: list[tuple[str, int]]
) -> None:
    """Cells open (o) and close (c), executions come (a) and go (r)."""
    kernel = Kernel()
    cells = [SimCell(i, room, kernel, machine()) for i, room in enumerate(capacities)]
    placement, serving = Placement(cells), set[int]()
    for kind, number in moves:
        cell = cells[number % len(cells)]
        if kind == "o" and cell.index not in serving:
            placement.open(cell)
            serving.add(cell.index)
        elif kind == "c" and cell.index in serving:
            placement.close(cell)
            serving.discard(cell.index)
        elif kind == "a" and cell.index in serving and cell.residents < cell.capacity:
            placement.add(cell)
        elif kind == "r" and cell.residents:
            placement.remove(cell)
        free = [one for one in cells if one.index in serving and one.residents < one.capacity]
        assert placement.room == sum(cells[index].capacity for index in serving)
        assert placement.serves(cell) is (cell.index in serving)
        assert placement.latest() is max(free, key=lambda one: one.index, default=None)
        lightest = min(free, key=lambda one: (one.residents, -one.index), default=None)
        assert placement.lightest() is lightest


@given(st.lists(st.integers(0, 3), max_size=12))
def test_what_happens_at_the_same_time_happens_in_the_order_it_was_made(times: list[int]) -> None:
    kernel, seen = Kernel(), list[tuple[int, int]]()
    for number, when in enumerate(times):
        kernel.at(float(when), lambda number=number, when=when: seen.append((when, number)))  # type: ignore[misc]
    kernel.run(lambda: len(seen) == len(times), len(times))
    assert seen == sorted(seen)
    assert kernel.events == len(times)
    with pytest.raises(SimulationError, match="nothing can happen any more"):
        kernel.run(lambda: False, 1)


def test_a_world_that_never_ends_is_stopped() -> None:
    kernel = Kernel()

    def again() -> None:
        kernel.after(1.0, again)

    again()
    with pytest.raises(SimulationError, match="7 events and no end"):
        kernel.run(lambda: False, 7)
    assert kernel.events == 7
    with pytest.raises(AssertionError, match="before"):
        kernel.at(kernel.now - 1.0, again)


def test_a_call_cannot_be_taken_away_twice() -> None:
    cell = SimCell(0, 1, Kernel(), machine())
    service = cell.begin(5.0, lambda: None)
    assert cell.take(service) == 5.0
    with pytest.raises(AssertionError, match="twice"):
        cell.take(service)
