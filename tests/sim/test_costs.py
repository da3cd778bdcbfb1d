"""Each time and cost of a workload and a machine, alone in a world that is computed by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.reasons import CellRole
from opengyre.sim.outcome import Outcome
from opengyre.sim.script import Script, Turn, stretched
from opengyre.sim.world import Setting, simulate
from tests.sim.made import load, machine, plan

SECONDS = st.just(0.0) | st.floats(0.5, 50.0)
ALONE, FULL = 10.0, 40.0
"""Tokens a second of one call, and of a cell that is full of them."""


@given(
    calls=st.integers(1, 4),
    tokens=st.fixed_dictionaries(
        {name: st.floats(1.0, 300.0) for name in ("answer", "observation", "first_prompt")}
    ),
    waits=st.fixed_dictionaries(dict.fromkeys(("tool", "start", "stop", "evaluation"), SECONDS)),
    costs=st.fixed_dictionaries(
        dict.fromkeys(("step", "publish", "to_training", "to_rollout"), SECONDS)
    ),
    prefill=st.floats(10.0, 1000.0),
    share=st.floats(0.2, 2.0),
)
def test_a_step_of_one_execution_is_the_sum_of_its_parts(
    calls: int,
    tokens: dict[str, float],
    waits: dict[str, float],
    costs: dict[str, float],
    prefill: float,
    share: float,
) -> None:
    steps = 3
    outcome = simulate(
        Setting(
            plan=plan(cells=(1,), group_size=1, total_steps=steps),
            policy="colocate",
            workload=load(
                calls=float(calls),
                trained_share=share,
                **{f"{name}_tokens": count for name, count in tokens.items()},
                **{f"{name}_s": seconds for name, seconds in waits.items()},
            ),
            machine=machine(
                decode_full_tokens_s=FULL,
                prefill_tokens_s=prefill,
                train_tokens_s=7.0,
                **{f"{name}_s": seconds for name, seconds in costs.items()},
            ),
        )
    )
    prompts = tokens["first_prompt"] + (calls - 1) * tokens["observation"]
    context = prompts + calls * tokens["answer"]
    served = (calls * tokens["answer"] + prompts * FULL / prefill) / ALONE
    execution = waits["start"] + served + (calls - 1) * waits["tool"] + waits["stop"]
    training = costs["to_training"] + context * share / 7.0 + costs["step"]
    step = execution + waits["evaluation"] + training
    between = costs["publish"] + costs["to_rollout"]
    assert outcome.executions_s == [[pytest.approx(execution)]] * steps
    assert outcome.steps == pytest.approx([(i + 1) * step + i * between for i in range(steps)])
    assert outcome.published == pytest.approx([at + costs["publish"] for at in outcome.steps])
    assert outcome.seconds == outcome.steps[-1]
    assert outcome.rollout_busy_s == pytest.approx(steps * served)
    assert outcome.training_busy_s == pytest.approx(steps * context * share / 7.0)
    tally = outcome.tally
    assert tally.sampled_tokens == pytest.approx(steps * calls * tokens["answer"])
    assert tally.prefilled_tokens == pytest.approx(steps * prompts)
    assert tally.trained_tokens == pytest.approx(steps * context * share)
    assert tally.held_calls == tally.moved_with_kv == tally.recomputed == tally.cells_lost == 0


def script(*turns: tuple[float, float, float, float], stop: float = 0.0) -> Script:
    """(wait, prompt, new, answer) of each turn; training it is of no interest."""
    return Script(turns=tuple(Turn(*turn) for turn in turns), stop_s=stop, trained_tokens=1.0)


def played(*scripts: Script, policy: str = "elastic", **changes: float | bool) -> Outcome:
    """Groups of one on two cells of one place. Under elastic the first one is on the satellite, the
    second on the core, which trains as soon as the first is over."""
    changes = {"publish_drops_prefixes": False, **changes}
    return simulate(
        Setting(
            plan=plan(
                cells=(1, 1),
                group_size=1,
                staleness_steps=len(scripts) - 1,
                total_steps=len(scripts),
            ),
            policy=policy,  # type: ignore[arg-type]
            workload=load(recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(decode_full_tokens_s=FULL, prefill_tokens_s=200.0, **changes),
        )
    )


WEIGHT = FULL / 200.0
"""Decoded tokens that a prompt token costs."""


def test_a_recorded_execution_takes_its_waits_and_its_tokens() -> None:
    own = script((3.0, 500.0, 500.0, 20.0), (4.0, 600.0, 80.0, 30.0), stop=5.0)
    outcome = played(own)
    served = (20.0 + 30.0 + WEIGHT * (500.0 + 80.0)) / ALONE
    assert outcome.executions_s == [[pytest.approx(3.0 + 4.0 + 5.0 + served)]]
    assert outcome.tally.trained_tokens == 1.0


def test_a_recorded_execution_without_calls_only_stops() -> None:
    assert played(script(stop=6.0)).executions_s == [[6.0]]


@given(rate=st.floats(1.0, 1000.0), at=st.floats(1.0, 20.0))
def test_a_call_that_moves_with_its_cache_waits_for_that_and_computes_no_token_again(
    rate: float, at: float
) -> None:
    """The first execution ends at a random moment of the second one's only call."""
    short, long = script(stop=at), script((0.0, 300.0, 300.0, 190.0))
    outcome = played(short, long, kv_move_tokens_s=rate)
    alone = (190.0 + WEIGHT * 300.0) / ALONE
    context = 300.0 + 190.0  # as long as the call will be: what it holds room for
    assert outcome.executions_s[1] == [pytest.approx(alone + context / rate)]
    assert outcome.tally.moved_with_kv == outcome.tally.held_calls == 1
    assert outcome.tally.held_s == pytest.approx(context / rate)
    assert outcome.tally.prefilled_tokens == 300.0


def test_a_call_that_is_moved_again_while_its_cache_is_on_its_way_counts_once() -> None:
    """The core, then the cell that its call goes to, leave for training, at 10 and 12 seconds."""
    scripts = (script(stop=12.0), script(stop=10.0), script((0.0, 300.0, 300.0, 190.0)))
    outcome = simulate(
        Setting(
            plan=plan(cells=(1, 1, 1), group_size=1, steps_per_burst=3, total_steps=3),
            policy="elastic",
            workload=load(recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(kv_move_tokens_s=10.0),
        )
    )
    assert outcome.tally.moved_with_kv == outcome.tally.held_calls == 1
    assert outcome.tally.recomputed == 0
    assert outcome.executions_s[2] == [pytest.approx(190.0 / ALONE + 2.0 + 490.0 / 10.0)]


def test_an_execution_whose_call_is_on_its_way_ends_at_its_limit() -> None:
    """The cache of its call leaves the core at 10 s and arrives at 59 s, when it is of no use any more."""
    scripts = (script(stop=10.0), script((0.0, 300.0, 300.0, 190.0)))
    outcome = simulate(
        Setting(
            plan=plan(cells=(1, 1), group_size=1, staleness_steps=1, total_steps=2),
            policy="elastic",
            workload=load(limit_s=30.0, recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(kv_move_tokens_s=10.0, step_s=100.0),
        )
    )
    assert outcome.steps == [110.0, 210.0]
    assert outcome.executions_s == [[10.0], [30.0]]
    assert outcome.tally.truncated == 1
    assert outcome.tally.moved_with_kv == 0


def test_calls_on_the_standalone_pool_stand_still_while_colocate_trains() -> None:
    """The long one is on the pool. From 10 s on it is held, until the only cell is back at 20 s."""
    scripts = (script((0.0, 0.0, 0.0, 150.0)), script(stop=10.0))
    outcome = simulate(
        Setting(
            plan=plan(
                cells=(1,), standalone_capacity=1, group_size=1, staleness_steps=1, total_steps=2
            ),
            policy="colocate",
            workload=load(recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(to_training_s=3.0, publish_s=5.0, to_rollout_s=2.0),
        )
    )
    assert outcome.published[0] == pytest.approx(18.0)
    assert outcome.executions_s == [[10.0], [pytest.approx(25.0)]]
    assert outcome.calls_s == outcome.rollout_busy_s == pytest.approx(15.0)


def paused(*scripts: Script, pool: int, **limits: float) -> Outcome:
    """Groups of one beside one cell of one place. Under colocate calls are held for 10 s when the first
    execution is over."""
    return simulate(
        Setting(
            plan=plan(
                cells=(1,),
                standalone_capacity=pool,
                group_size=1,
                staleness_steps=len(scripts) - 1,
                total_steps=len(scripts),
            ),
            policy="colocate",
            workload=load(recorded=tuple((one,) for one in scripts), **limits),  # type: ignore[arg-type]
            machine=machine(
                decode_full_tokens_s=FULL,
                prefill_tokens_s=200.0,
                to_training_s=3.0,
                publish_s=5.0,
                to_rollout_s=2.0,
                publish_drops_prefixes=False,
            ),
        )
    )


def test_a_call_that_begins_in_a_pause_is_held_until_its_end() -> None:
    """On the pool, at 12 s. As after a move, its context is as long as the call will be."""
    outcome = paused(script((12.0, 300.0, 300.0, 30.0)), script(stop=10.0), pool=1)
    served = (30.0 + WEIGHT * (300.0 + 30.0)) / ALONE
    assert outcome.executions_s[1] == [pytest.approx(20.0 + served)]
    assert outcome.tally.held_calls == 1
    assert outcome.tally.held_s == pytest.approx(8.0)


@pytest.mark.parametrize(("counts", "spared"), [(True, 0.0), (False, 10.0)])
def test_a_limit_that_does_not_count_pauses_comes_later_by_those_that_are_over(
    counts: bool, spared: float
) -> None:
    outcome = paused(
        script(stop=10.0),
        script((0.0, 0.0, 0.0, 1000.0)),
        pool=1,
        limit_s=25.0,
        limit_counts_pauses=counts,
    )
    assert outcome.executions_s == [[10.0], [pytest.approx(25.0 + spared)]]
    assert outcome.tally.truncated == 1


@pytest.mark.parametrize(("counts", "spared"), [(True, 0.0), (False, 10.0)])
def test_a_call_that_stands_still_on_the_pool_is_held_as_one_on_a_cell(
    counts: bool, spared: float
) -> None:
    """The long one came first, so it is on the pool, which has no role to leave."""
    scripts = (script((0.0, 0.0, 0.0, 1000.0)), script(stop=10.0))
    outcome = paused(*scripts, pool=1, limit_s=25.0, limit_counts_pauses=counts)
    assert outcome.executions_s == [[10.0], [pytest.approx(25.0 + spared)]]
    assert outcome.tally.held_calls == 1
    assert outcome.tally.held_s == pytest.approx(10.0)


def test_a_call_that_went_on_after_a_pause_stands_still_in_the_next_one() -> None:
    """The third execution takes the cell at 10 s and is over at 25 s."""
    scripts = (script((12.0, 300.0, 300.0, 130.0)), script(stop=10.0), script(stop=15.0))
    outcome = paused(*scripts, pool=1)
    served = (130.0 + WEIGHT * (300.0 + 130.0)) / ALONE
    assert outcome.executions_s == [[10.0], [15.0], [pytest.approx(20.0 + 10.0 + served)]]
    assert outcome.calls_s == pytest.approx(served)


def test_a_call_whose_cell_leaves_in_a_pause_waits_for_its_end_and_computes_its_context_again() -> (
    None
):
    """There is room on the pool, but nothing goes on before the pause is over, and nobody keeps its
    cache until then."""
    outcome = paused(script(stop=10.0), script((0.0, 300.0, 300.0, 190.0)), pool=2)
    served = (190.0 + WEIGHT * (300.0 + 490.0)) / ALONE
    assert outcome.executions_s[1] == [pytest.approx(10.0 + served)]
    assert outcome.tally.held_calls == 1
    assert outcome.tally.held_s == pytest.approx(10.0)
    assert outcome.tally.moved_with_kv == 0


def test_an_execution_that_moves_goes_where_it_can_stay_longest() -> None:
    """The core leaves at 10 s, then the first satellite, where nobody is. The core's execution goes to the
    second satellite, where two are, so it is not moved again."""
    long = script((0.0, 0.0, 0.0, 200.0))
    scripts = (long, script(stop=10.0), long, long)
    outcome = simulate(
        Setting(
            plan=plan(cells=(1, 3, 3), group_size=1, staleness_steps=3, total_steps=4),
            policy="elastic",
            workload=load(recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(step_s=1.0),
        )
    )
    trained = [one.cell for one in outcome.roles if one.role is CellRole.TRAINING and one.at < 20.0]
    assert trained == [0, 1]
    assert outcome.tally.moved_with_kv == outcome.tally.held_calls == 1


def test_a_call_that_is_cut_off_leaves_its_time_to_the_others_from_then_on() -> None:
    """One server of 10 tokens a second. The second call begins at 4 s, and has 40 of its 70 tokens when the
    first one's execution comes to its limit at 12 s; then it is alone."""
    scripts = (
        script((0.0, 0.0, 0.0, 1000.0)),
        script(stop=4.0),
        script((0.0, 0.0, 0.0, 70.0)),
    )
    outcome = simulate(
        Setting(
            plan=plan(cells=(1, 2), group_size=1, staleness_steps=2, total_steps=3),
            policy="async",
            workload=load(limit_s=12.0, recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(decode_full_tokens_s=ALONE),
        )
    )
    assert outcome.executions_s == [[4.0], [12.0], [pytest.approx(11.0)]]
    assert outcome.rollout_busy_s == pytest.approx(15.0)
    assert outcome.calls_s == pytest.approx(12.0 + 11.0)


def test_what_lived_before_a_pause_goes_on_before_anything_new_starts() -> None:
    """Pauses last 10 s: from 10 s on, when the first one is over, and from 30 s on, when the second one
    is. The third one began at 10 s in the first one's place; the fourth one waits at 20 s."""
    long = script((0.0, 0.0, 0.0, 200.0))
    scripts = (script(stop=10.0), long, long, script(stop=100.0))
    outcome = simulate(
        Setting(
            plan=plan(cells=(1, 1), group_size=1, staleness_steps=2, total_steps=4),
            policy="colocate",
            workload=load(recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(to_training_s=3.0, publish_s=5.0, to_rollout_s=2.0),
        )
    )
    found = [seconds for (seconds,) in outcome.executions_s]
    assert found == pytest.approx([10.0, 30.0, 40.0, 100.0])


def bereaved(*scripts: Script, **limits: float) -> Outcome:
    """Groups of one on a core of one place and a satellite of two that is lost at 2 s for a long time.
    The seed says so."""
    return simulate(
        Setting(
            plan=plan(
                cells=(1, 2),
                group_size=1,
                staleness_steps=len(scripts) - 1,
                total_steps=len(scripts),
            ),
            policy="elastic",
            workload=load(recorded=tuple((one,) for one in scripts), **limits),  # type: ignore[arg-type]
            machine=machine(mean_life_s=100.0, restart_s=200.0),
            seed=996,
        )
    )


def lost_at(outcome: Outcome) -> float:
    """When the satellite was lost, and nothing else."""
    (lost,) = (change for change in outcome.roles if change.role is CellRole.LOST)
    assert lost.cell == 1
    assert lost.at == pytest.approx(2.0, abs=0.1)
    return lost.at


def test_a_call_whose_cell_is_lost_computes_its_context_again_elsewhere() -> None:
    outcome = bereaved(script((0.0, 300.0, 300.0, 190.0)))
    lost_at(outcome)
    assert outcome.tally.recomputed == outcome.tally.held_calls == 1
    assert outcome.tally.moved_with_kv == 0
    assert outcome.tally.prefilled_tokens == 300.0 + 490.0


def test_a_cache_that_is_on_its_way_to_a_cell_that_is_lost_is_computed_again_elsewhere() -> None:
    """The core leaves at 1 s. Its call goes to the last cell, which this seed takes away at 2 s, and goes
    on where there is room."""
    stop = script(stop=50.0)
    scripts = (script(stop=1.0), stop, script((0.0, 300.0, 300.0, 190.0)), stop)
    outcome = simulate(
        Setting(
            plan=plan(cells=(1, 3, 2), group_size=1, staleness_steps=3, total_steps=4),
            policy="elastic",
            workload=load(recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(
                decode_full_tokens_s=FULL,
                prefill_tokens_s=200.0,
                kv_move_tokens_s=10.0,
                step_s=10.0,
                publish_drops_prefixes=False,
                mean_life_s=100.0,
                restart_s=200.0,
            ),
            seed=11609,
        )
    )
    (lost,) = (change for change in outcome.roles if change.role is CellRole.LOST)
    assert lost.cell == 2
    assert lost.at == pytest.approx(2.0, abs=0.1)
    served = (190.0 + WEIGHT * (300.0 + 490.0)) / ALONE
    assert outcome.executions_s[1] == [pytest.approx(served + lost.at - 1.0)]
    assert outcome.tally.recomputed == outcome.tally.held_calls == 1
    assert outcome.tally.moved_with_kv == 0


def test_executions_that_lost_their_cell_take_the_places_that_become_free_in_turn() -> None:
    """The second execution, on the core, is over at 10 s; then the first one goes on there, then the
    third."""
    outcome = bereaved(
        script((0.0, 0.0, 0.0, 300.0)), script(stop=10.0), script((0.0, 0.0, 0.0, 400.0))
    )
    lost = lost_at(outcome)
    first = 300 / ALONE + 10.0 - lost
    third = 400 / ALONE + first - lost
    assert outcome.executions_s == [[10.0], [pytest.approx(first)], [pytest.approx(third)]]
    assert outcome.tally.held_s == pytest.approx(10.0 - lost + first - lost)


def test_an_execution_that_ends_without_a_cell_takes_no_place_any_more() -> None:
    """The first and the second one come to their limit at 5 s; the third one then has the core."""
    outcome = bereaved(
        script(stop=100.0), script(stop=100.0), script(stop=100.0), script(stop=1.0), limit_s=5.0
    )
    lost_at(outcome)
    assert outcome.tally.truncated == 3
    assert outcome.executions_s == [[5.0], [5.0], [5.0], [1.0]]
    assert outcome.seconds == 6.0


def test_new_executions_go_to_the_cells_with_the_fewest() -> None:
    """Two calls on one cell would take twice as long."""
    outcome = simulate(
        Setting(
            plan=plan(cells=(3, 3, 3), group_size=3),
            policy="colocate",
            workload=load(),
            machine=machine(decode_full_tokens_s=ALONE),
        )
    )
    assert outcome.executions_s == [[pytest.approx(100 / ALONE)] * 3]


@given(at=st.floats(1.0, 20.0))
def test_a_call_that_moves_without_its_cache_computes_its_context_again(at: float) -> None:
    short, long = script(stop=at), script((0.0, 300.0, 300.0, 190.0))
    outcome = played(short, long, moves_kv=False)
    alone = (190.0 + WEIGHT * 300.0) / ALONE
    assert outcome.executions_s[1] == [pytest.approx(alone + WEIGHT * (300.0 + 190.0) / ALONE)]
    assert outcome.tally.recomputed == outcome.tally.held_calls == 1
    assert outcome.tally.held_s == 0.0


@pytest.mark.parametrize("moves_kv", [True, False])
def test_an_execution_that_moves_between_two_calls_leaves_its_cache_behind(moves_kv: bool) -> None:
    """Nothing is in flight, so nothing is moved: the next call pays for its whole prompt."""
    long = script((0.0, 100.0, 100.0, 80.0), (50.0, 400.0, 220.0, 40.0))
    outcome = played(script(stop=30.0), long, moves_kv=moves_kv)
    served = (80.0 + 40.0 + WEIGHT * (100.0 + 400.0)) / ALONE
    assert outcome.executions_s[1] == [pytest.approx(50.0 + served)]
    assert outcome.tally.held_calls == 0


def test_a_cache_that_is_on_its_way_when_a_new_version_comes_is_computed_again() -> None:
    """The next call then finds it."""
    outcome = played(
        script(stop=10.0),
        script((0.0, 300.0, 300.0, 190.0), (5.0, 550.0, 60.0, 20.0)),
        kv_move_tokens_s=10.0,
        publish_s=5.0,
        publish_drops_prefixes=True,
    )
    served = (190.0 + 20.0 + WEIGHT * (300.0 + 490.0 + 60.0)) / ALONE
    assert outcome.published[0] == pytest.approx(15.0)
    assert outcome.executions_s[1] == [pytest.approx(served + 490.0 / 10.0 + 5.0)]


@pytest.mark.parametrize(("drops", "again"), [(True, 490.0), (False, 0.0)])
def test_a_new_version_makes_a_running_call_compute_its_context_again(
    drops: bool, again: float
) -> None:
    """The second execution runs on the only rollout cell when the first one's version comes. The
    next call finds what was computed."""
    outcome = played(
        script(stop=10.0),
        script((0.0, 300.0, 300.0, 190.0), (5.0, 550.0, 60.0, 20.0)),
        policy="async",
        publish_s=5.0,
        publish_drops_prefixes=drops,
    )
    served = (190.0 + 20.0 + WEIGHT * (300.0 + again + 60.0)) / ALONE
    assert outcome.published[0] == pytest.approx(15.0)
    assert outcome.executions_s[1] == [pytest.approx(served + 5.0)]
    assert outcome.tally.held_calls == 0


@pytest.mark.parametrize(("drops", "prefix"), [(True, 180.0), (False, 0.0)])
def test_a_new_version_makes_one_call_compute_its_prefix_again(drops: bool, prefix: float) -> None:
    outcome = played(
        script(stop=10.0),
        script((0.0, 100.0, 100.0, 80.0), (50.0, 400.0, 220.0, 40.0), (10.0, 500.0, 60.0, 20.0)),
        policy="async",
        publish_s=20.0,
        publish_drops_prefixes=drops,
    )
    served = (80.0 + 40.0 + 20.0 + WEIGHT * (100.0 + 220.0 + prefix + 60.0)) / ALONE
    assert outcome.executions_s[1] == [pytest.approx(60.0 + served)]


@pytest.mark.parametrize(("streaming", "end"), [(True, 130.0), (False, 160.0)])
def test_a_stream_is_trained_as_groups_come_and_a_batch_when_all_are_there(
    streaming: bool, end: float
) -> None:
    """Two groups of a step are ready at 10 s and 100 s, and take 30 s each."""
    scripts = (script(stop=10.0), script(stop=100.0))
    outcome = simulate(
        Setting(
            plan=plan(cells=(1, 2), group_size=1, groups_per_step=2),
            policy="async",
            workload=load(recorded=tuple((one,) for one in scripts)),  # type: ignore[arg-type]
            machine=machine(train_tokens_s=1 / 30),
            streaming=streaming,
        )
    )
    assert outcome.steps == [pytest.approx(end)]
    assert outcome.training_busy_s == pytest.approx(60.0)


@given(
    executions=st.integers(1, 6),
    cells=st.integers(1, 4),
    micro=st.sampled_from([20.0, 30.0, 50.0, 1e9]),
)
def test_equal_micro_steps_are_done_in_rounds_of_the_cells(
    executions: int, cells: int, micro: float
) -> None:
    """A group's tokens are cut into the fewest equal pieces that a micro-step holds."""
    outcome = simulate(
        Setting(
            plan=plan(cells=(executions,) * cells, group_size=executions),
            policy="colocate",
            workload=load(),
            machine=machine(train_tokens_s=5.0, micro_step_tokens=micro),
        )
    )
    tokens = executions * 100.0
    pieces = -(-tokens // micro)
    rounds = -(-pieces // cells)
    assert outcome.seconds == pytest.approx(10.0 + rounds * tokens / pieces / 5.0)


@pytest.mark.parametrize("share", ["excluded_share", "no_spread_share"])
@pytest.mark.parametrize("of_all", [0.0, 0.3, 1.0])
def test_what_gives_no_gradient_is_not_trained(share: str, of_all: float) -> None:
    """By chance: four standard deviations of the binomial distribution around the share."""
    steps, members = 100, 4
    outcome = simulate(
        Setting(
            plan=plan(cells=(members, 1), group_size=members, total_steps=steps),
            policy="colocate",
            workload=load(**{share: of_all}),
            machine=machine(),
        )
    )
    drawn = steps * members if share == "excluded_share" else steps
    band = 4 * (of_all * (1 - of_all) / drawn) ** 0.5
    found = outcome.tally.trained_tokens / (steps * members * 100.0)
    assert found == pytest.approx(1 - of_all, abs=band)
    lost = 1 - found if share == "excluded_share" else 0.0
    assert outcome.tally.excluded == pytest.approx(lost * steps * members)


def test_spreads_keep_the_means_and_differ_between_tasks_and_members() -> None:
    """Four standard errors of log-normal means; the ratio of a group's members has no task in it."""
    groups, members = 150, 4
    outcome = simulate(
        Setting(
            plan=plan(cells=(members * groups,), group_size=members, groups_per_step=groups),
            policy="colocate",
            workload=load(
                calls=20.0,
                answer_tokens=10.0,
                tool_s=1.0,
                task_spread=0.4,
                member_spread=0.3,
                answer_spread=0.5,
                tool_spread=0.5,
            ),
            machine=machine(),
            seed=3,
        )
    )
    means = [sum(group) / members for group in outcome.executions_s]
    mean = sum(means) / groups
    assert mean == pytest.approx(20.0 + 19.0, abs=4 * 39.0 * 0.45 / groups**0.5)
    assert outcome.execution_s == pytest.approx(mean)
    within = sum(max(group) / min(group) for group in outcome.executions_s) / groups
    between = sorted(means)[groups * 9 // 10] / sorted(means)[groups // 10]
    assert 1.7 < within < 2.2  # members part by e**(0.3 * 2.06) = 1.86 on average
    assert 2.2 < between < 3.6  # tasks' tenths by e**(2.56 * 0.43) = 3.0
    slowest = [max(group) / (sum(group) / members) for group in outcome.executions_s]
    assert outcome.slowest_over_mean == pytest.approx(sum(slowest) / groups)


def test_recorded_groups_are_played_in_order_and_then_drawn() -> None:
    groups = [script(stop=float(i + 1)) for i in range(3)]
    setting = Setting(
        plan=plan(cells=(4, 4), group_size=2, total_steps=20),
        policy="colocate",
        workload=load(recorded=tuple((one, one) for one in groups)),  # type: ignore[arg-type]
        machine=machine(),
    )
    found = simulate(setting).executions_s
    assert found[:3] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert {tuple(group) for group in found[3:]} == {(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)}


def test_stretching_multiplies_each_kind_by_its_own_factor() -> None:
    own = Script(turns=(Turn(1.0, 10.0, 5.0, 7.0),), stop_s=2.0, trained_tokens=11.0)
    changed = stretched(((own,),), waits=2.0, answers=3.0, prompts=5.0, trained=7.0)
    wanted = Script(turns=(Turn(2.0, 50.0, 25.0, 21.0),), stop_s=4.0, trained_tokens=77.0)
    assert changed == ((wanted,),)
    assert stretched(((own,),)) == ((own,),)


def test_a_cell_is_in_no_role_for_as_long_as_its_switch_takes() -> None:
    outcome = simulate(
        Setting(
            plan=plan(cells=(2, 2, 2), total_steps=4, staleness_steps=1),
            policy="elastic",
            workload=load(calls=3.0, tool_s=4.0, member_spread=0.5, task_spread=0.5),
            machine=machine(train_tokens_s=30.0, to_training_s=1.5, to_rollout_s=0.5),
        )
    )
    took = {CellRole.TRAINING: 1.5, CellRole.ROLLOUT: 0.5}
    switches = 0
    for cell in range(3):
        changes = [change for change in outcome.roles if change.cell == cell]
        for before, after in pairwise(changes):
            assert (before.role is CellRole.SWITCHING) is (after.role is not CellRole.SWITCHING)
            if after.role is not CellRole.SWITCHING:
                switches += 1
                assert after.at - before.at == pytest.approx(took[after.role])
    assert switches >= 4
