"""The ablation changes J_max and nothing else, on any recorded run."""

import asyncio
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.app.recordings import Member, a_config, scored, write_calls, write_run
from tests.tree.strategies import make_call

from opengyre.app.bench.jmax import JmaxSettings, measure_jmax
from opengyre.app.bench.recordings import run_folders
from opengyre.app.bench.show import jmax_json, jmax_table, jmax_words
from opengyre.app.bench.workload import Workload, write_policy
from opengyre.core.errors import UserError
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import Role
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree

ONCE = JmaxSettings(repeats=1, token_budget=256)


def ticking() -> Callable[[], float]:
    clock = FakeClock()

    def now() -> float:
        clock.advance(1.0)
        return clock.now()

    return now


def branched(name: str, sub_agents: int, largest: int = 90) -> ExecutionTree:
    """A main conversation and sub-agents, each with an answer of four tokens."""
    draw = random.Random(name)
    calls = []
    for index in range(1 + sub_agents):
        calls.append(
            make_call(
                f"{name}-{index}",
                index=index,
                execution_id=name,
                suffix=[5, 6, 7, 10 + index],
                output=[draw.randrange(3, largest) for _ in range(4)],
                role=Role.SUB_AGENT if index else Role.MAIN,
            )
        )
    return ExecutionTree(calls)


def a_recording(folder: Path, names: list[str], sub_agents: int = 7) -> Path:
    """As a proxy without tasks leaves it: calls and nothing else."""
    with RunStore(folder / "run.sqlite") as store:
        for name in names:
            asyncio.run(write_calls(store, branched(name, sub_agents).calls))
    return folder


def a_run(folder: Path, *, sub_agents: int) -> Path:
    write_policy(Workload(hidden=64, layers=1), folder / "model")
    members: list[Member] = [
        (f"g-{n}", branched(f"g-{n}", sub_agents), scored(float(n))) for n in range(3)
    ]
    write_run(folder, {"g": members}, a_config(folder / "model"))
    return folder


def test_more_trajectories_train_more_tokens_and_all_of_them_agree_with_themselves(
    tmp_path: Path,
) -> None:
    found = measure_jmax([a_recording(tmp_path, ["a", "b"])], ONCE, ticking())
    one, five, unlimited = found.choices
    assert [one.j_max, five.j_max, unlimited.j_max] == ["1", "5", "unlimited"]
    assert [c.trajectories for c in found.choices] == [2, 10, 16]
    assert [c.token_share for c in found.choices] == [8 / 64, 40 / 64, 1.0]
    assert [c.cut_tokens for c in found.choices] == [56, 24, 0]
    assert unlimited.cosine == pytest.approx(1.0)
    assert unlimited.gradient_norm_ratio == unlimited.time_ratio == 1.0
    assert -1.0 <= one.cosine < five.cosine < 1.0
    assert (found.executions, found.branched, found.leaves) == (2, 2, 16)
    assert found.advantages == "+1 and -1 in turns"
    assert found.model.startswith("a random Qwen3")
    assert found.truncated_tokens == 0


def test_a_run_without_branches_is_trained_whole_whatever_j_max_is(tmp_path: Path) -> None:
    found = measure_jmax([a_run(tmp_path, sub_agents=0)], ONCE, ticking())
    assert found.advantages == "recorded"
    assert found.model == "weights of model"
    assert found.executions == 2, "the one with the mean reward has no gradient to give"
    for choice in found.choices:
        assert choice.token_share == 1.0
        assert choice.gradient_norm_ratio == 1.0
        assert choice.cosine == pytest.approx(1.0)


def test_what_is_deeper_than_the_budget_is_left_out_and_told(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        calls = [
            make_call("c0", suffix=[1] * 60, output=[2] * 10),
            make_call("c1", index=1, parent_id="c0", reused=70, suffix=[3], output=[4] * 5),
        ]
        asyncio.run(write_calls(store, calls))
    found = measure_jmax([tmp_path], JmaxSettings(repeats=1, token_budget=64), ticking())
    assert found.truncated_tokens == 6 + 5
    assert {choice.trained_tokens for choice in found.choices} == {4}


def test_draws_are_averaged_and_everything_is_written_down(tmp_path: Path) -> None:
    settings = JmaxSettings(repeats=1, draws=2, token_budget=256)
    found = measure_jmax([a_recording(tmp_path, ["a"])], settings, ticking())
    assert found.choices[0].cosine_worst <= found.choices[0].cosine
    figures = jmax_json(found)
    assert figures["bench"] == "jmax"
    assert "commit" in str(figures["machine"])
    assert jmax_table(found).row_count == 3
    assert "1 executions, 1 with more than one leaf" in jmax_words(found)[0]
    assert all(math.isfinite(choice.gradient_norm) for choice in found.choices)


def test_a_folder_of_runs_is_all_of_them(tmp_path: Path) -> None:
    a_recording(tmp_path / "x" / "one", ["a"])
    a_recording(tmp_path / "x" / "two", ["b"])
    assert [run.name for run in run_folders([tmp_path / "x"])] == ["one", "two"]


def test_a_folder_without_a_run_or_without_calls_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.sqlite"):
        measure_jmax([tmp_path], ONCE, ticking())
    with RunStore(tmp_path / "run.sqlite"):
        pass
    with pytest.raises(UserError, match="record a run first"):
        measure_jmax([tmp_path], ONCE, ticking())
