"""Every token that a run sampled is in its books once, and report, tree and summary agree on it."""

import asyncio
import io
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.app.recordings import a_config, scored, write_calls, write_run
from tests.tree.strategies import Member, groups, make_call

from opengyre.app.recorded import Books, Recorded, books_of, config_of, open_run
from opengyre.app.report.cut import fates_figure, tables
from opengyre.app.report.page import write_report
from opengyre.app.show_tree import show_tree
from opengyre.app.summary import account_of
from opengyre.core.errors import UserError
from opengyre.core.reasons import Role
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree
from opengyre.tree.show import fates_of

FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))


def books(run: Path) -> Books:
    with open_run(run) as store:
        return books_of(Recorded(store, config_of(run, store)).ledgers())


@FEW
@given(groups("g1"), groups("g2", 3), groups("h", 2), st.integers(0, 3))
def test_the_books_hold_every_sampled_token_of_every_execution_once(
    first: list[Member], unfinished: list[Member], heldout: list[Member], j_max: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        made = {"g1": first, "g2": unfinished}
        given_samples = write_run(
            run, made, a_config(j_max=j_max), heldout=heldout, unfinished=("g2",)
        )
        found = books(run)
    members = [*first, *unfinished, *heldout]
    sampled = {name: sum(len(c.output_ids) for c in tree.calls) for name, tree, _ in members}
    assert {name: ledger.sampled for name, _, ledger in found.executions if ledger.sampled} == {
        name: tokens for name, tokens in sampled.items() if tokens
    }
    assert found.total.sampled == sum(sampled.values()) == sum(fates_of(found.total).values())
    owned = sum(len(t.owned) for s in given_samples["g1"].samples for t in s.trajectories)
    assert found.total.owned == owned
    assert found.total.excluded.get("held-out", 0) == sum(sampled[n] for n, _, _ in heldout)
    drawn = sum(sum(bar.x) for bar in fates_figure(found).data)
    assert drawn == found.total.sampled


def a_run(folder: Path) -> Path:
    """One group of two with a sub-agent each, and J_max 1."""

    def member(name: str, reward: float) -> Member:
        calls = [
            make_call(f"{name}-m", execution_id=name, suffix=[1], output=[2, 3, 4]),
            make_call(
                f"{name}-s",
                index=1,
                execution_id=name,
                suffix=[1, 5],
                output=[6, 7],
                role=Role.SUB_AGENT,
            ),
            make_call(
                f"{name}-x",
                index=2,
                execution_id=name,
                suffix=[8],
                output=[9],
                role=Role.AUXILIARY,
            ),
        ]
        return name, ExecutionTree(calls), scored(reward)

    write_run(folder, {"g": [member("g-0", 0.0), member("g-1", 1.0)]}, a_config(j_max=1))
    return folder


def test_the_report_says_what_was_cut_by_role_reason_and_execution(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    section = tables(books(run))
    assert "<td>sub-agent</td><td></td><td>4</td><td>0</td><td>0</td><td>4</td>" in section
    assert "cut by J_max 2, excluded: auxiliary 1" in section
    assert section.count("task-of-g") == 2
    assert "What was cut, and why" in write_report(run).read_text()


def test_the_tree_ends_with_its_ledger(tmp_path: Path) -> None:
    told = io.StringIO()
    show_tree(a_run(tmp_path), "g-1", Console(file=told, width=200))
    last = told.getvalue().strip().splitlines()[-1]
    assert last == "6 sampled = 3 trained + 2 cut by J_max + 1 excluded: auxiliary"


def test_the_tree_says_which_cells_answered(tmp_path: Path) -> None:
    ways: list[list[int]] = [[0], [1], [1, 0], []]
    calls = [
        msgspec.structs.replace(
            make_call(f"c{place}", index=place, execution_id="e", suffix=[1], output=[2, 3]),
            cells=cells,
        )
        for place, cells in enumerate(ways)
    ]

    async def write(store: RunStore) -> None:
        for call in calls:
            await store.record(call)

    with RunStore(tmp_path / "run.sqlite") as store:
        asyncio.run(write(store))
    told = io.StringIO()
    show_tree(tmp_path, "e", Console(file=told, width=200))
    last = told.getvalue().strip().splitlines()[-1]
    assert last == (
        "cell 0 finished 2 calls of 4 tokens; cell 1 finished 1 calls of 2 tokens; 1 moved 1 → 0"
    )


def test_the_summary_has_the_whole_account(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with open_run(run) as store:
        account = account_of(store, a_config(j_max=1))
    assert account["balanced"] is True
    assert (account["sampled"], account["trained"], account["cut"]) == (12, 6, 4)
    assert account["cut_by_execution"] == {"g-0": 2, "g-1": 2}
    assert isinstance(account["by_role"], dict)
    assert account["by_role"]["auxiliary"]["excluded"] == {"auxiliary": 2}


def test_calls_without_an_execution_have_no_verdict(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        asyncio.run(write_calls(store, [make_call("c", suffix=[1], output=[2])]))
    assert books(tmp_path).total.excluded == {"no-verdict": 1}


def test_a_folder_without_a_run_is_refused_and_left_alone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.sqlite"):
        open_run(tmp_path)
    assert not list(tmp_path.iterdir())
