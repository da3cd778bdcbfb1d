import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from opengyre.app.bench.tree import measure_trees
from opengyre.app.bench.workload import Workload, write_policy
from opengyre.core.errors import UserError
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import Ending, FinishReason, Role, VerdictKind
from opengyre.core.records import Call, ExecutionRecord, Verdict, VersionSpan
from opengyre.store.rows import GroupRow, GroupState
from opengyre.store.run import RunStore

CONFIG = """\
[policy]
model = "{model}"
context_tokens = 64
max_new_tokens = 16
[tasks]
train = "t"
heldout = "h"
[schedule]
group_size = 2
[learner]
clip_low = 0.9
clip_high = 9.0
"""
PROMPT = list(range(1, 11))


def a_call(execution: str, index: int, parent: Call | None, draw: random.Random) -> Call:
    output = [draw.randrange(3, 99) for _ in range(4)]
    return Call(
        call_id=f"{execution}-c{index}",
        execution_id=execution,
        index=index,
        dialect="chat",
        parent_id=parent.call_id if parent else None,
        reused=len(PROMPT) + 4 if parent else 0,
        suffix_ids=[3, 4] if parent else PROMPT,
        output_ids=output,
        output_logprobs=[-2.5] * len(output),
        versions=[VersionSpan(0, 0, len(output))],
        finish=FinishReason.STOP,
        role=Role.MAIN,
        role_why="test",
        fork=None,
        started_at=0.0,
        ended_at=1.0,
    )


def a_record(group: str, execution: str, reward: float) -> ExecutionRecord:
    return ExecutionRecord(
        execution_id=execution,
        group_id=group,
        task_id="t",
        harness="command",
        split="train",
        version_dispatched=0,
        attempt=1,
        dispatched_at=0.0,
        started_at=0.0,
        ended_at=1.0,
        verdict=Verdict(kind=VerdictKind.SCORED, ending=Ending.FINISHED, reward=reward),
    )


async def write_group(store: RunStore, index: int, rewards: list[float]) -> None:
    """Each execution answers twice after one prompt, then once more after the first answer."""
    group, draw = f"g{index}", random.Random(index)
    for member, reward in enumerate(rewards):
        execution = f"{group}-{member}"
        first = a_call(execution, 0, None, draw)
        for call in (first, a_call(execution, 1, first, draw), a_call(execution, 2, first, draw)):
            await store.record(call)
        await store.put_execution(a_record(group, execution, reward))
    row = GroupRow(
        group_id=group,
        index=index,
        task_id="t",
        version_dispatched=0,
        state=GroupState.CONSUMED,
        step=index,
    )
    await store.put_group(row)


def a_run(folder: Path, rewards: list[list[float]]) -> Path:
    write_policy(Workload(hidden=64, layers=1), folder / "model")
    (folder / "config.toml").write_text(CONFIG.format(model=folder / "model"))
    with RunStore(folder / "run.sqlite") as store:
        for index, group in enumerate(rewards):
            asyncio.run(write_group(store, index, group))
    return folder


def ticking() -> Callable[[], float]:
    clock = FakeClock()

    def now() -> float:
        clock.advance(1.0)
        return clock.now()

    return now


def test_newest_groups_with_spread_are_compared_and_their_prefixes_computed_once(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path, [[0.0, 1.0], [1.0, 0.0], [0.5, 1.0], [1.0, 1.0]])
    found = measure_trees(run, groups=2, repeats=1, now=ticking())
    assert (found.groups, found.executions, found.trajectories) == (2, 4, 8)
    assert found.expanded_tokens == 8 * 20
    assert found.packed_tokens <= 2 * (10 + 2 * (4 + 2 + 2 * 4))
    assert found.token_ratio == found.packed_tokens / found.expanded_tokens
    assert found.max_relative_gradient_error < 1e-5
    assert found.relative_gradient_error <= found.worst_weight_gradient_error < 1e-5


def test_a_folder_without_a_run_or_without_spread_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.sqlite"):
        measure_trees(tmp_path, 1, 1, ticking())
    with pytest.raises(UserError, match="gradient"):
        measure_trees(a_run(tmp_path, [[1.0, 1.0]]), 1, 1, ticking())
