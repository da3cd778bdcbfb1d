"""A summary tells of the whole run, also where it was resumed."""

from pathlib import Path

from tests.app.test_steps import a_config

from opengyre.app.history import History
from opengyre.app.summary import summarise
from opengyre.app.train import Outcome
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import ExecutionRecord, Verdict
from opengyre.store.run import RunStore


def a_record(execution_id: str, *, final: bool, kind: VerdictKind) -> ExecutionRecord:
    return ExecutionRecord(
        execution_id=execution_id,
        group_id="g",
        task_id="t",
        harness="command",
        split="train",
        version_dispatched=0,
        attempt=1,
        dispatched_at=0.0,
        started_at=0.0,
        ended_at=0.0,
        verdict=Verdict(kind=kind, ending=Ending.FINISHED),
        member="g-00",
        final=final,
    )


async def test_an_evaluation_before_the_resume_is_told(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite") as store:
        history = History(store, FakeClock(), 2, lambda _: None)
        await history.evaluation("before", 0, [True, False, False, False])
        summary = summarise(a_config(), Outcome(), store)
    assert summary["heldout_pass_before"] == 0.25
    assert summary["heldout_pass_after"] is None


async def test_a_repeated_try_is_neither_progress_nor_excluded(tmp_path: Path) -> None:
    tries = [
        a_record("e1", final=False, kind=VerdictKind.INFRASTRUCTURE_FAILURE),
        a_record("e2", final=True, kind=VerdictKind.SCORED),
    ]
    with RunStore(tmp_path / "run.sqlite") as store:
        history = History(store, FakeClock(), 2, lambda _: None)
        for record in tries:
            await store.put_execution(record)
            history.execution(record)
        assert history.figures.phase_done == 1
        assert history.figures.excluded == 0
        summary = summarise(a_config(), Outcome(), store)
    assert summary["excluded"] == 0
    assert summary["training_executions"] == 1
