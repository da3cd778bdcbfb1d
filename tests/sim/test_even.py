"""Cells serve evenly where they are to, and after a pause."""

import pytest
from msgspec.structs import replace as with_fields

from opengyre.scheduler.base import SchedulePlan
from opengyre.scheduler.elastic import Elastic
from opengyre.sim.outcome import Outcome
from opengyre.sim.world import Setting, simulate
from tests.sim.made import load, machine

PLAN = SchedulePlan(
    cells=(8, 8),
    group_size=4,
    groups_per_step=1,
    steps_per_burst=1,
    staleness_steps=0,
    total_steps=3,
)
LOAD = load(calls=6.0, answer_tokens=30.0, observation_tokens=50.0, first_prompt_tokens=100.0)
MACHINE = machine(
    decode_full_tokens_s=30.0,
    train_tokens_s=2000.0,
    to_training_s=0.5,
    to_rollout_s=0.5,
    publish_s=1.0,
)


class Even(Elastic):
    """As elastic, with executions that leave a crowded cell."""

    evens_out = True


def ran(policy: str | Elastic, **changes: float) -> Outcome:
    setting = Setting(
        plan=PLAN,
        policy=policy,  # type: ignore[arg-type]
        workload=LOAD,
        machine=with_fields(MACHINE, **changes),
    )
    return simulate(setting)


def test_after_a_pause_executions_spread_as_at_the_beginning() -> None:
    """All are alike, so each burst takes what the first did, beside what lies between them."""
    first, second, third = ran("colocate").steps
    assert second - first == pytest.approx(first + 1.0 + 0.5)
    assert third - second == pytest.approx(second - first)


def test_executions_that_began_on_one_cell_spread_over_those_that_open_later() -> None:
    """The core serves again after the others were filled, so with even cells calls are faster."""
    staying, even = ran("elastic"), ran(Even())
    assert even.seconds < staying.seconds
    assert even.steps[0] == staying.steps[0], "at the beginning all cells were open"
    assert even.tally.executions == staying.tally.executions == 12
    assert even.tally.sampled_tokens == staying.tally.sampled_tokens


def test_a_context_is_computed_again_on_the_cell_that_its_execution_goes_to() -> None:
    staying, even = ran("elastic"), ran(Even())
    assert even.tally.prefilled_tokens > staying.tally.prefilled_tokens
    dear = {"prefill_tokens_s": 60.0}
    assert ran(Even(), **dear).seconds > even.seconds
