"""Whatever moves, waits or is lost: tokens are served once, seconds add up, work is trained once."""

import math
import random
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.core.reasons import CellRole
from opengyre.sim.cells import SimCell
from opengyre.sim.execution import Execution
from opengyre.sim.fleet import Fleet
from opengyre.sim.kernel import Kernel, SimulationError
from opengyre.sim.outcome import Outcome, RoleChange
from opengyre.sim.placement import Placement
from opengyre.sim.world import Setting, simulate
from tests.sim.made import load, machine, plans

SPEED, PREFILL, TRAIN = 50.0, 4000.0, 300.0
"""A cell is one server of constant speed, so that its busy time tells what it served."""
ANSWER, TOOL, START, STOP = 30.0, 4.0, 1.0, 0.5

SETTINGS = st.builds(
    Setting,
    plan=plans(standalone=[0]),
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
    spent = dict.fromkeys(CellRole, 0.0)
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
        earlier = [change.role for change in core if change.at < at]
        held = {earlier[-1], *(change.role for change in core if change.at == at)}
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


@given(SETTINGS, st.sampled_from([5.0, 12.0, 20.0]))
@settings(max_examples=15)
def test_an_execution_is_truncated_at_its_limit_and_no_other_is(
    setting: Setting, limit: float
) -> None:
    limited = msgspec.structs.replace(setting.workload, limit_s=limit)
    outcome = simulate(replace(setting, workload=limited))
    lived = [seconds for group in outcome.executions_s for seconds in group]
    assert len(lived) == outcome.tally.executions == EXECUTIONS
    assert max(lived) <= limit * (1 + 1e-9)
    assert sum(seconds >= limit * (1 - 1e-9) for seconds in lived) == outcome.tally.truncated


@given(
    capacities=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    moves=st.lists(st.tuples(st.sampled_from("ocar"), st.integers(0, 4)), max_size=60),
)
def test_the_best_cell_is_the_one_that_looking_at_all_of_them_finds(
    capacities: list[int], moves: list[tuple[str, int]]
) -> None:
    """Cells open (o) and close (c), executions come (a) and go (r)."""
    kernel = Kernel()
    fleet = Fleet(machine())
    cells = [SimCell(i, n, kernel, fleet, lambda _: None) for i, n in enumerate(capacities)]
    placement, serving = Placement(cells), set[int]()
    for kind, number in moves:
        cell = cells[number % len(cells)]
        if kind == "o" and cell.index not in serving:
            placement.open(cell)
            serving.add(cell.index)
        elif kind == "c" and cell.index in serving:
            placement.close(cell)
            serving.discard(cell.index)
        elif kind == "a" and cell.index in serving and len(cell.residents) < cell.capacity:
            placement.add(cell, an_execution())
        elif kind == "r" and cell.residents:
            placement.remove(cell, next(iter(cell.residents)))
        free = [c for c in cells if c.index in serving and len(c.residents) < c.capacity]
        assert placement.room == sum(cells[index].capacity for index in serving)
        assert placement.serves(cell) is (cell.index in serving)
        assert placement.latest() is max(free, key=lambda one: one.index, default=None)
        lightest = min(free, key=lambda one: (len(one.residents), -one.index), default=None)
        assert placement.lightest() is lightest


def an_execution() -> Execution:
    return Execution("g0", 0, 0, 1)


class Happenings:
    """Events that make events, at the same time, soon, or much later, some by a number kept back."""

    def __init__(self, seed: int, scales: list[float]) -> None:
        self.kernel, self._rng = Kernel(), random.Random(seed)
        self._scales = scales
        self.made = 0
        self._kept: list[int] = []
        self.seen: list[tuple[float, int]] = []

    def make(self) -> None:
        scale = self._scales[len(self.seen) * len(self._scales) // EVENTS % len(self._scales)]
        seconds = self._rng.choice([0.0, 1.0, 3.0]) * self._rng.random() * scale
        when = self.kernel.now + seconds
        self.made += 1
        if when > self.kernel.now and self._kept and self._rng.random() < 0.5:
            number = self._kept.pop()
            self.kernel.put(when, number, self._happen, (when, number))
            self._kept.append(self.kernel.number())
        else:
            if len(self._kept) < 10:
                self._kept.append(self.kernel.number())
                self.made += 1
            self.kernel.after(seconds, self._happen, (when, self.made))

    def _happen(self, at: tuple[float, int]) -> None:
        when, number = at
        assert self.kernel.now == when
        self.seen.append((when, number))
        if len(self.seen) < EVENTS:
            self.make()


EVENTS = 9000
"""Enough at once for narrower slots, and afterwards enough of them for wider ones."""


@given(
    seed=st.integers(0, 999),
    scales=st.lists(st.sampled_from([1e-5, 0.01, 1.0, 100.0, 1e6]), min_size=1, max_size=4),
    together=st.sampled_from([1, 10, 5000]),
)
@settings(max_examples=12)
def test_everything_happens_once_in_order_of_time_and_then_of_making(
    seed: int, scales: list[float], together: int
) -> None:
    happenings = Happenings(seed, scales)
    for _ in range(together):
        happenings.make()
    expected = EVENTS - 1 + together
    happenings.kernel.run(lambda: len(happenings.seen) == expected, expected)
    assert happenings.seen == sorted(happenings.seen)
    assert happenings.kernel.events == expected
    assert len({number for _, number in happenings.seen}) == expected
    happenings.kernel.after(math.inf, happenings.seen.append, (math.inf, 0))
    with pytest.raises(SimulationError, match="nothing can happen any more"):
        happenings.kernel.run(lambda: False, 1)


def test_a_world_that_never_ends_is_stopped() -> None:
    kernel = Kernel()

    def again(seconds: float) -> None:
        kernel.after(seconds, again, seconds)

    again(1.0)
    with pytest.raises(SimulationError, match="7 events and no end"):
        kernel.run(lambda: False, 7)
    assert kernel.events == 7
    with pytest.raises(AssertionError, match="from now"):
        again(-1.0)


def test_a_call_cannot_be_taken_away_twice() -> None:
    cell, execution = SimCell(0, 1, Kernel(), Fleet(machine()), lambda _: None), an_execution()
    cell.begin(execution, 5.0)
    assert cell.take(execution) == 5.0
    with pytest.raises(AssertionError, match="twice"):
        cell.take(execution)
