"""Faults of ours and of the evaluator never become a reward; the agent's own faults do."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from opengyre.core.errors import SandboxError
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import Verdict
from opengyre.sandbox.base import Command, Outcome, Sandbox
from opengyre.tasks.base import Task
from opengyre.tasks.evaluate import UNSCORED, evaluate
from opengyre.tasks.fakes import ScriptedSandbox, ended, place
from opengyre.tasks.load import load_task
from tests.tasks.conftest import WriteTask

Script = Callable[[Command], Outcome]
SCORED = [ending for ending in Ending if ending not in UNSCORED]


@pytest.fixture
def task(write: WriteTask) -> Task:
    return load_task(write())


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello\n")
    return folder


def writes(text: str | None, outcome: Outcome, canary: str | None = None) -> Script:
    def script(command: Command) -> Outcome:
        logs = place(command, "/logs") / "verifier"
        if text is not None:
            (logs / "reward.json").write_text(text)
        if canary is not None:
            (logs / "canary.json").write_text(canary)
        return outcome

    return script


async def verdict_of(
    task: Task, workspace: Path, sandbox: Sandbox, ending: Ending = Ending.FINISHED, tries: int = 2
) -> Verdict:
    scratch = workspace.parent / "scratch"
    verdict = await evaluate(task, workspace, sandbox, scratch, ending, tries)
    assert not scratch.exists()
    return verdict


@pytest.mark.parametrize("ending", SCORED)
async def test_work_is_scored_however_its_program_ended(
    task: Task, workspace: Path, ending: Ending
) -> None:
    sandbox = ScriptedSandbox(writes('{"reward": 0.5, "f2p": 0.5, "p2p": 1}', ended()))
    verdict = await verdict_of(task, workspace, sandbox, ending)
    assert (verdict.kind, verdict.ending) == (VerdictKind.SCORED, ending)
    assert (verdict.reward, verdict.passed) == (0.5, False)
    assert verdict.parts == {"f2p": 0.5, "p2p": 1}


@pytest.mark.parametrize("ending", UNSCORED)
async def test_other_endings_run_no_tests(task: Task, workspace: Path, ending: Ending) -> None:
    sandbox = ScriptedSandbox(writes('{"reward": 1}', ended()))
    verdict = await verdict_of(task, workspace, sandbox, ending)
    assert (verdict.kind, verdict.reward, verdict.passed) == (UNSCORED[ending], None, None)
    assert sandbox.commands == []


@pytest.mark.parametrize(
    "script",
    [
        writes('{"reward": NaN}', ended()),
        writes('{"reward": -1}', ended(1)),
        writes('{"reward": 7}', ended()),
        writes('{"a": {"reward": 1}}', ended()),
        writes(None, ended()),
        writes(None, ended(1)),
        writes('{"reward": 1}', ended(None, timed_out=True)),
        writes('{"reward": 1}', ended(137, oom=True)),
        writes('{"reward": 1}', ended(), canary='{"ok": false}'),
        writes('{"reward": 1}', ended(), canary="what"),
        writes(None, ended(), canary='{"ok": true}'),
    ],
    ids=range(11),
)
async def test_an_evaluators_fault_is_tried_again_and_never_a_reward(
    task: Task, workspace: Path, script: Script
) -> None:
    sandbox = ScriptedSandbox(script)
    verdict = await verdict_of(task, workspace, sandbox, tries=3)
    assert verdict.kind is VerdictKind.EVALUATOR_FAILURE
    assert (verdict.reward, verdict.passed) == (None, None)
    assert "attempt 3" in verdict.detail
    assert len(sandbox.commands) == 3


async def test_a_second_try_starts_from_the_snapshot_with_fresh_logs(
    task: Task, workspace: Path
) -> None:
    seen = []

    def script(command: Command) -> Outcome:
        copy, logs = place(command, "/work"), place(command, "/logs")
        seen.append((copy / "hello.txt").read_text())
        assert not list((logs / "verifier").iterdir())
        (copy / "hello.txt").write_text("spoilt")
        reward = -1 if len(seen) == 1 else 1
        (logs / "verifier/reward.txt").write_text(str(reward))
        return ended()

    verdict = await verdict_of(task, workspace, ScriptedSandbox(script))
    assert (verdict.kind, verdict.reward, verdict.passed) == (VerdictKind.SCORED, 1, True)
    assert seen == ["hello\n", "hello\n"]
    assert (workspace / "hello.txt").read_text() == "hello\n"


async def test_tests_that_die_after_their_canary_are_the_agents_fault(
    task: Task, workspace: Path
) -> None:
    sandbox = ScriptedSandbox(writes(None, ended(137), canary='{"ok": true}'))
    verdict = await verdict_of(task, workspace, sandbox)
    assert (verdict.kind, verdict.reward, verdict.passed) == (VerdictKind.SCORED, 0, False)
    assert "canary passed" in verdict.detail


async def test_a_broken_sandbox_during_tests_is_not_the_agents_fault(
    task: Task, workspace: Path
) -> None:
    def script(command: Command) -> Outcome:
        raise SandboxError("gone")

    verdict = await verdict_of(task, workspace, ScriptedSandbox(script))
    assert verdict.kind is VerdictKind.EVALUATOR_FAILURE


async def test_a_workspace_over_the_limit_gets_the_lowest_reward(
    task: Task, workspace: Path
) -> None:
    sandbox = ScriptedSandbox(writes('{"reward": 1}', ended()))
    scratch = workspace.parent / "scratch"
    verdict = await evaluate(task, workspace, sandbox, scratch, Ending.FINISHED, 1, max_bytes=3)
    assert (verdict.kind, verdict.reward) == (VerdictKind.SCORED, task.reward_low)
    assert sandbox.commands == []
    assert "workspace_mb" in verdict.detail


async def test_really_scored(task: Task, workspace: Path, sandbox: Sandbox) -> None:
    assert (await verdict_of(task, workspace, sandbox)).reward == 1
    (workspace / "hello.txt").unlink()
    assert (await verdict_of(task, workspace, sandbox)).reward == 0


async def test_a_canary_script_decides_whose_fault_it_is(
    write: WriteTask, workspace: Path, sandbox: Sandbox
) -> None:
    crash = {"tests/test.sh": "exit 3\n"}
    good = load_task(write(crash | {"tests/canary.sh": "test ! -e hello.txt\n"}, name="good"))
    bad = load_task(write(crash | {"tests/canary.sh": "exit 1\n"}, name="bad"))
    assert (await verdict_of(good, workspace, sandbox)).reward == 0
    assert (await verdict_of(bad, workspace, sandbox)).kind is VerdictKind.EVALUATOR_FAILURE


async def test_a_slow_evaluator_is_a_failure_though_it_wrote(
    write: WriteTask, workspace: Path, sandbox: Sandbox
) -> None:
    changes = {
        "task.toml": "[verifier]\ntimeout_sec = 0.5\n",
        "tests/test.sh": "echo 1 > /logs/verifier/reward.txt; sleep 20\n",
    }
    verdict = await verdict_of(load_task(write(changes)), workspace, sandbox, tries=1)
    assert verdict.kind is VerdictKind.EVALUATOR_FAILURE
    assert "ran out" in verdict.detail


async def test_a_hostile_workspace_gains_nothing(
    task: Task, workspace: Path, sandbox: Sandbox
) -> None:
    secret = workspace.parent / "secret"
    secret.write_text("hello\n")
    (workspace / "hello.txt").unlink()
    (workspace / "hello.txt").symlink_to(secret)
    (workspace / "logs/verifier").mkdir(parents=True)
    (workspace / "logs/verifier/reward.json").write_text('{"reward": 1}')
    (workspace / "reward.json").write_text('{"reward": 1}')
    (workspace / "etc").symlink_to("/etc")
    os.mkfifo(workspace / "pipe")
    verdict = await verdict_of(task, workspace, sandbox)
    assert (verdict.kind, verdict.reward) == (VerdictKind.SCORED, 0)
