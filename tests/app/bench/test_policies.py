"""The bench's whole path, real: cells, proxy, sandboxes, its own agent, a fixed split."""

from pathlib import Path

import pytest

from opengyre.app.bench.policies import Contender, measure
from opengyre.app.bench.show import simulate_words
from opengyre.app.bench.workload import Workload, write_workload


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_run_ends_and_its_figures_add_up(tmp_path: Path) -> None:
    work = Workload(
        steps=2,
        group_size=2,
        groups_per_step=1,
        steps_per_burst=1,
        wait_s=0.2,
        hidden=64,
        layers=2,
        turns=2,
    )
    write_workload(work, tmp_path)
    told: list[int] = []
    run = measure(work, tmp_path, Contender("async"), 0, lambda _, steps: told.append(steps))
    assert told == [1, 2]
    assert run.label == "async 1:1"
    assert (run.steps, run.executions, run.excluded) == (2, 4, 0)
    assert run.harness_visible_errors == 0
    assert sum(run.role_share.values()) == pytest.approx(1.0)
    assert run.idle_share + sum(run.busy_share.values()) == pytest.approx(1.0)
    assert run.busy_share["training"] > 0
    assert run.busy_share["rollout"] > 0
    assert run.execution_s > work.wait_s
    assert 0 < run.reward < 1
    assert run.packed_tokens > 0


def test_kept_runs_say_how_they_are_simulated() -> None:
    names = ["async-1-1-0", "async-1-1-1", "colocate-0", "colocate-1", "elastic-0", "elastic-1"]
    words = simulate_words([Path("b/runs") / name for name in names])
    assert words.endswith(
        "opengyre simulate --from b/runs/colocate-0 "
        "--against b/runs/async-1-1-0 --against b/runs/elastic-0"
    )
