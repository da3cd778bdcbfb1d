"""Presets say what is known and what is assumed, and become the world that they say."""

import random

import pytest

from opengyre.app.simulate.baselines import ELASTIC, Choice, best, run, splits
from opengyre.app.simulate.build import HOUR_S, build
from opengyre.app.simulate.commands import middle
from opengyre.app.simulate.ensemble import bundled_ensemble
from opengyre.app.simulate.paper import scene_of
from opengyre.app.simulate.presets import (
    CALIBRATED,
    OF_WORKLOAD,
    Values,
    load_preset,
    preset_names,
    workplace,
)
from opengyre.core.errors import UserError

PUBLISHED = {"nl2repo-122b", "deepswe", "terminalbench", "nl2repo-2.4t"}


def some_values(seed: int) -> Values:
    preset = load_preset(CALIBRATED)
    drawn = preset.assumed.draw(random.Random(seed))
    return preset.known_numbers | drawn | {"nominal_h": 1.93, "member_spread": 0.2}


def test_every_published_workload_has_a_preset_with_its_source() -> None:
    assert set(preset_names()) >= PUBLISHED
    for name in PUBLISHED:
        preset = load_preset(name)
        assert preset.source == "arXiv 2609.33848"
        assert set(preset.published) == {"async", "colocate"}
        assert preset.calibrated is (name == CALIBRATED)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="deepswe"):
        load_preset("deepsweet")


def test_a_known_fact_stands_above_every_assumption() -> None:
    values = workplace("nl2repo-2.4t", some_values(1) | {"cells": 6.0}, 3).values
    assert values["cells"] == 4
    assert values["execution_tokens"] == 700e3
    assert values["training_share"] == some_values(1)["training_share"]


def test_drawn_widely_a_predicted_workload_keeps_the_machine_and_its_known_facts() -> None:
    mine, ranges = some_values(1), load_preset(CALIBRATED).assumed.ranges
    drawn = [workplace("nl2repo-2.4t", mine, member, wide=True).values for member in range(40)]
    for name in OF_WORKLOAD:
        values, (low, high) = {one[name] for one in drawn}, ranges[name]
        if name == "execution_tokens":
            assert values == {700e3}
        else:
            assert low <= min(values) < low + (high - low) / 4
            assert high - (high - low) / 4 < max(values) <= high
    assert {one["slowdown"] for one in drawn} == {mine["slowdown"]}
    assert {one["limit_h"] for one in drawn} == {16.0}
    assert drawn[3] == workplace("nl2repo-2.4t", mine, 3, wide=True).values


def test_the_fitted_row_is_the_same_however_widely_the_others_are_drawn() -> None:
    mine = some_values(1)
    assert workplace(CALIBRATED, mine, 3, wide=True) == workplace(CALIBRATED, mine, 3)


@pytest.mark.parametrize("seed", range(8))
def test_a_scene_has_the_shares_it_was_asked_for(seed: int) -> None:
    values = some_values(seed)
    scene = build(values)
    plan, load, machine = scene.plan, scene.workload, scene.machine
    places = plan.cells[0]
    executions = plan.groups_per_step * plan.group_size
    nominal = values["nominal_h"] * HOUR_S
    tools = load.tool_s * (load.calls - 1)
    assert tools == pytest.approx(values["tool_share"] * nominal)
    busy = max(2.0, places * (1 - values["tool_share"]))
    rate = machine.decode_alone_tokens_s / (
        1 + (busy - 1) * machine.decode_alone_tokens_s / machine.decode_full_tokens_s
    )
    prompts = load.observation_tokens * machine.prefill_weight
    assert load.calls * (load.answer_tokens + prompts) / rate + tools == pytest.approx(nominal)
    tokens = executions * values["execution_tokens"] * values["length"]
    training = tokens / machine.train_tokens_s
    rollout = executions * nominal / places
    assert training / (training + rollout) == pytest.approx(values["training_share"])


def test_the_best_split_is_no_slower_than_any() -> None:
    scene = build(some_values(2) | {"total_steps": 6.0})
    chosen = best(scene, splits(scene), 5)
    assert chosen.hours == min(run(scene, one, 5).hours for one in splits(scene))
    assert {one.streaming for one in splits(scene)} == {True, False}


def test_executions_of_the_largest_preset_have_their_published_length() -> None:
    scene = scene_of("nl2repo-2.4t", middle(bundled_ensemble()))
    outcome = run(scene, ELASTIC, 77, 24).outcome
    slow = [max(group) >= 4 * HOUR_S for group in outcome.executions_s]
    assert sum(slow) / len(slow) == pytest.approx(0.611, abs=0.12)


def test_a_choice_says_what_it_is() -> None:
    assert str(Choice("async", 2, streaming=False)) == "async, 2 train, no streaming"
    assert str(ELASTIC) == "elastic"
