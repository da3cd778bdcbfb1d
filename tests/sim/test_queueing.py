"""Theory that holds without any simulator: queues, slowest of a group, work that is conserved."""

import random
from statistics import fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.sim.cells import SimCell
from opengyre.sim.execution import Execution
from opengyre.sim.fleet import Fleet
from opengyre.sim.kernel import Kernel
from opengyre.sim.workload import Machine
from opengyre.sim.world import Setting, simulate
from tests.sim.made import load, machine, plan

SPEED = 10.0
"""Tokens a second of a cell that is one server: alone and full are the same."""
BATCHES, A_BATCH = 20, 3000
"""Means of batches are nearly independent, so their spread gives the band of the whole mean."""
WIDE = 4.0
"""Standard errors that a right mean may be off; by chance it happens once in 10,000 seeds."""


def responses(utilisation: float, *, exponential: bool) -> list[float]:
    """Seconds in a cell of calls that arrive at random, with mean work of one second."""
    kernel, rng = Kernel(), random.Random(7)
    seen: list[float] = []
    cell = SimCell(
        0,
        10**6,
        kernel,
        Fleet(Machine(decode_alone_tokens_s=SPEED, decode_full_tokens_s=SPEED, train_tokens_s=1.0)),
        lambda caller: seen.append(kernel.now - caller.started_at),
    )

    def arrive(load: float) -> None:
        caller = Execution("g0", 0, 0, 1)
        caller.started_at = kernel.now
        work = rng.expovariate(1.0) if exponential else 1.0
        cell.begin(caller, work * SPEED)
        kernel.after(rng.expovariate(load), arrive, load)

    kernel.after(0.0, arrive, utilisation)
    kernel.run(lambda: len(seen) == BATCHES * A_BATCH, 10**6)
    return seen


@pytest.mark.parametrize("exponential", [True, False])
@pytest.mark.parametrize("utilisation", [0.3, 0.7])
def test_a_shared_cell_answers_as_the_theory_of_shared_servers_says(
    utilisation: float, exponential: bool
) -> None:
    """Under processor sharing the mean response is s / (1 - rho), whatever the distribution of work:
    M/M/1-PS and M/D/1-PS agree."""
    seen = responses(utilisation, exponential=exponential)
    means = [fmean(seen[i : i + A_BATCH]) for i in range(0, len(seen), A_BATCH)]
    error = stdev(means) / BATCHES**0.5
    assert fmean(means) == pytest.approx(1 / (1 - utilisation), abs=WIDE * error)
    assert error < 0.05 / (1 - utilisation)


@pytest.mark.parametrize("members", [1, 4, 16])
def test_the_slowest_of_a_group_is_the_harmonic_number_times_the_mean(members: int) -> None:
    """Of N exponential durations the largest is 1 + 1/2 + … + 1/N means on average."""
    groups = 400
    outcome = simulate(
        Setting(
            plan=plan(
                cells=(members * groups,),
                group_size=members,
                groups_per_step=groups,
                staleness_steps=0,
            ),
            policy="colocate",
            workload=load(calls=2.0, answer_tokens=1e-9, tool_s=5.0, tool_exponential=True),
            machine=machine(),
            seed=11,
        )
    )
    slowest = [max(group) for group in outcome.executions_s]
    harmonic = sum(1 / i for i in range(1, members + 1))
    variance = sum(1 / i**2 for i in range(1, members + 1))
    band = WIDE * 5.0 * (variance / groups) ** 0.5
    assert len(slowest) == groups
    assert fmean(slowest) == pytest.approx(5.0 * harmonic, abs=band)


def test_a_step_waits_for_the_slowest_of_all_its_groups() -> None:
    """Nothing but exponential executions, all in place at once: a step takes H of all of them."""
    steps, together = 150, 12
    outcome = simulate(
        Setting(
            plan=plan(cells=(together,), group_size=4, groups_per_step=3, total_steps=steps),
            policy="colocate",
            workload=load(calls=2.0, answer_tokens=1e-9, tool_s=1.0, tool_exponential=True),
            machine=machine(),
            seed=5,
        )
    )
    harmonic = sum(1 / i for i in range(1, together + 1))
    variance = sum(1 / i**2 for i in range(1, together + 1))
    band = WIDE * (variance / steps) ** 0.5
    assert outcome.seconds / steps == pytest.approx(harmonic, abs=band)


@given(
    policy=st.sampled_from(["elastic", "colocate", "async"]),
    micro=st.sampled_from([30.0, 100.0, 1e9]),
    seed=st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_training_does_all_the_tokens_once_at_the_speed_of_its_cells(
    policy: str, micro: float, seed: int
) -> None:
    """No cell is lost: training cells are busy for tokens over speed, however they share them."""
    setting = Setting(
        plan=plan(cells=(3, 3, 3), group_size=3, groups_per_step=2, total_steps=4),
        policy=policy,  # type: ignore[arg-type]
        workload=load(calls=4.0, member_spread=0.5, tool_s=3.0, observation_tokens=20.0),
        machine=machine(train_tokens_s=50.0, micro_step_tokens=micro, to_training_s=1.0),
        seed=seed,
    )
    outcome = simulate(setting)
    assert outcome.training_busy_s == pytest.approx(outcome.tally.trained_tokens / 50.0)
    assert outcome.seconds >= outcome.training_busy_s / 3
    assert outcome.seconds * 3 >= outcome.training_busy_s + outcome.rollout_busy_s


@given(slots=st.integers(1, 4), waves=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_without_a_queue_or_training_the_rate_is_littles_law(slots: int, waves: int) -> None:
    """Executions in service = rate times their time, when every place is always taken."""
    outcome = simulate(
        Setting(
            plan=plan(
                cells=(slots, slots),
                group_size=1,
                groups_per_step=slots * waves,
                total_steps=6,
            ),
            policy="async",
            workload=load(calls=3.0, tool_s=2.0),
            machine=machine(),
        )
    )
    seconds = outcome.execution_s
    rate = outcome.tally.executions / outcome.seconds
    assert seconds == pytest.approx(3 * 10 + 2 * 2)
    assert rate * seconds == pytest.approx(slots)
