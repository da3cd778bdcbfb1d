import json
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from opengyre.app.bench.ratios import compare_runs
from opengyre.app.bench.runs import PolicyRun
from opengyre.app.bench.show import policies_json, policies_table, policies_words
from opengyre.app.bench.workload import Workload
from opengyre.app.results import write_json
from opengyre.core.errors import UserError
from opengyre.scheduler.staleness import Spread


def a_run(label: str, seconds: float, repeat: int = 0, reward: float = 0.5) -> PolicyRun:
    return PolicyRun(
        label=label,
        repeat=repeat,
        seconds=seconds,
        steps=6,
        executions=96,
        excluded=0,
        role_share={"rollout": 1.0},
        busy_share={"rollout": 0.3, "training": 0.2},
        idle_share=0.5,
        beside_share=0.01,
        execution_s=10.0,
        slowest_over_mean=1.5,
        staleness_steps=Spread(1.0, 2, 2),
        staleness_versions=Spread(0.5, 1, 1),
        token_age_versions=0.4,
        reward=reward,
        reward_error=0.01,
        reward_last=0.5,
        role_switches=3,
        switch_s=0.1,
        moved_with_kv=2,
        recomputed=1,
        harness_visible_errors=0,
        packed_tokens=1000,
    )


RUNS = [
    a_run("elastic", 9.0),
    a_run("elastic", 11.0, repeat=1),
    a_run("colocate", 12.0),
    a_run("async 1:2", 15.0),
    a_run("async 2:1", 13.0),
]


def test_ratios_are_of_mean_times_and_against_the_best_split() -> None:
    found = compare_runs(RUNS, staleness_bound=2)
    assert found.elastic_over_colocate == pytest.approx(1.2)
    assert found.elastic_over_async_best == pytest.approx(1.3)
    assert found.async_best == "async 2:1"
    assert found.scores_within_noise
    assert found.within_bound
    assert found.forecast_over_elastic is None


def test_forecast_is_compared_with_elastic_where_it_ran() -> None:
    runs = [*RUNS, a_run("forecast", 8.0)]
    found = compare_runs(runs, staleness_bound=2)
    assert found.forecast_over_elastic == pytest.approx(1.25)
    assert "forecast is 1.25 times as fast as elastic" in policies_words(runs, found)


def test_different_scores_and_old_groups_are_told() -> None:
    late = msgspec.structs.replace(a_run("async 1:2", 9.0), staleness_versions=Spread(1.0, 3, 3))
    found = compare_runs([*RUNS, a_run("colocate", 12.0, 1, reward=0.6), late], staleness_bound=2)
    assert not found.scores_within_noise
    assert not found.within_bound


def test_table_words_and_json_hold_the_figures(tmp_path: Path) -> None:
    found = compare_runs(RUNS, staleness_bound=2)
    console = Console(width=80, record=True, file=(tmp_path / "out").open("w"))
    console.print(policies_table(RUNS, found))
    text = console.export_text()
    console.file.close()
    for shown in ("async 2:1", "1.30", "0.500±0.010", "1.0/2/2", "2+1"):
        assert shown in text
    assert "1.20 times as fast as colocate" in policies_words(RUNS, found)[0]
    write_json(policies_json(RUNS, found, Workload()), tmp_path / "deep" / "figures.json")
    read = json.loads((tmp_path / "deep" / "figures.json").read_text())
    assert read["elastic_over_colocate"] == pytest.approx(1.2)
    assert len(read["runs"]) == len(RUNS)
    assert read["machine"]["commit"]


def test_a_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--json"):
        write_json({}, tmp_path)
