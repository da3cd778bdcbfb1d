"""A good task has no faults; a reward for doing nothing and a solution that fails are told."""

from pathlib import Path

from opengyre.sandbox.base import Sandbox
from opengyre.tasks.check import check_tasks
from opengyre.tasks.load import load_tasks
from tests.tasks.conftest import WriteTask


async def test_faults_are_told_by_task(write: WriteTask, tmp_path: Path, sandbox: Sandbox) -> None:
    write(name="good")
    write({"tests/test.sh": "echo 1 > /logs/verifier/reward.txt"}, name="generous")
    write({"solution/solve.sh": "exit 3"}, name="unsolved")
    write({"solution/solve.sh": None}, name="without")
    folder = write({"tests/test.sh": "echo nan > /logs/verifier/reward.txt"}, name="broken").parent
    results = await check_tasks(load_tasks(folder), sandbox, tmp_path / "scratch")
    told = {result.task_id: "; ".join(result.faults) for result in results}
    assert told["good"] == ""
    assert "doing nothing scores 1" in told["generous"]
    assert "ended with 3" in told["unsolved"]
    assert "solve.sh" in told["without"]
    assert "evaluator-failure" in told["broken"]
    assert [result.good for result in results] == [False, False, True, False, False]
