"""Worlds that are simple enough to be computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.scheduler.base import Decision
from opengyre.scheduler.colocate import Colocate
from opengyre.scheduler.state import State
from opengyre.sim.cells import SimCell
from opengyre.sim.execution import Execution
from opengyre.sim.fleet import Fleet
from opengyre.sim.kernel import Kernel
from opengyre.sim.workload import Machine
from opengyre.sim.world import Setting, simulate
from tests.sim.made import load, machine, plan


def test_an_execution_alone_takes_its_calls_and_its_tools() -> None:
    outcome = simulate(
        Setting(
            plan=plan(cells=(1,), group_size=1),
            policy="colocate",
            workload=load(calls=5.0, tool_s=3.0),
            machine=machine(),
        )
    )
    assert outcome.executions_s == [[pytest.approx(5 * 100 / 10 + 4 * 3)]]
    assert outcome.seconds == pytest.approx(62.0)


def test_calls_share_a_cell_evenly() -> None:
    one = machine(decode_full_tokens_s=40.0)
    outcome = simulate(
        Setting(
            plan=plan(cells=(8,), group_size=8), policy="colocate", workload=load(), machine=one
        )
    )
    alone, eight = 10.0, 10.0 / (1 + 7 * 10 / 40)
    assert one.decode_tokens_s(8) == pytest.approx(eight)
    assert one.decode_tokens_s(1) == alone
    assert outcome.executions_s == [[pytest.approx(100 / eight)] * 8]


@given(arrivals=st.lists(st.tuples(st.floats(0, 50), st.floats(0.1, 200)), min_size=1, max_size=12))
def test_a_cell_does_all_the_work_and_no_more(arrivals: list[tuple[float, float]]) -> None:
    """With decode_full equal to decode_alone the cell is one server of constant speed: its busy time
    is the work over the speed, whatever the order of arrival."""
    kernel = Kernel()
    ended: list[float] = []
    fleet = Fleet(
        Machine(decode_alone_tokens_s=10.0, decode_full_tokens_s=10.0, train_tokens_s=1.0)
    )
    one = SimCell(0, 99, kernel, fleet, lambda _caller: ended.append(kernel.now))

    def arrive(tokens: float) -> None:
        one.begin(Execution("g0", 0, 0, 1), tokens)

    for at, tokens in arrivals:
        kernel.after(at, arrive, tokens)
    kernel.run(lambda: len(ended) == len(arrivals), 10_000)
    one.settle()
    work = sum(tokens for _, tokens in arrivals)
    assert fleet.busy_s == pytest.approx(work / 10.0)
    assert max(ended) >= max(at + tokens / 10.0 for at, tokens in arrivals) * (1 - 1e-9)


class Told(Colocate):
    """Keeps what the scheduler was told that its steps computed."""

    computed_s = 0.0

    def arrange(self, state: State) -> list[Decision]:
        self.computed_s = state.computed_s
        return super().arrange(state)


def test_training_bound_time_is_tokens_over_speed() -> None:
    """Rollout takes no time: two cells train 6 steps of 4 executions of 100 tokens; the scheduler is told
    what they computed."""
    policy = Told()
    outcome = simulate(
        Setting(
            plan=plan(total_steps=6, groups_per_step=2, cells=(8, 8)),
            policy=policy,
            workload=load(),
            machine=machine(decode_alone_tokens_s=1e12, train_tokens_s=5.0, micro_step_tokens=50.0),
        )
    )
    assert outcome.seconds == pytest.approx(6 * 4 * 100 / (2 * 5.0))
    assert outcome.training_busy_s == pytest.approx(6 * 4 * 100 / 5.0)
    assert policy.computed_s == pytest.approx(outcome.training_busy_s)


def test_rollout_bound_time_is_waves_of_executions() -> None:
    """One rollout cell with two places, ten seconds an execution, four executions a step."""
    outcome = simulate(
        Setting(
            plan=plan(total_steps=5, groups_per_step=2, cells=(2, 2)),
            policy="async",
            workload=load(),
            machine=machine(),
        )
    )
    assert outcome.seconds == pytest.approx(5 * 4 / 2 * 10)


def test_a_barrier_waits_for_the_longest_share() -> None:
    """Dealt out one by one, three executions leave one cell with two of them."""
    shared = Setting(
        plan=plan(group_size=3, cells=(4, 4)),
        policy="colocate",
        workload=load(),
        machine=machine(decode_alone_tokens_s=1e12, train_tokens_s=10.0, micro_step_tokens=10.0),
    )
    assert simulate(shared).seconds == pytest.approx(300 / 20)
    barrier = Setting(
        plan=shared.plan,
        policy="colocate",
        workload=shared.workload,
        machine=shared.machine,
        streaming=False,
    )
    assert simulate(barrier).seconds == pytest.approx(200 / 10)
