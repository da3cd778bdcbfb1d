"""From the end of an execution to its verdict.

Invariant: a SCORED verdict has a reward that the task's evaluator gave, or the lowest one where
the agent's own work made scoring impossible: its canary passed and then the tests died, or the
workspace is larger than may be preserved. Faults of ours or of the evaluator
never become a reward. Tests run on copies: the workspace stays as the agent left it.
"""

import json
from pathlib import Path

from opengyre.core.errors import EvaluatorError, SandboxError
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import Verdict
from opengyre.sandbox.base import Bind, Command, Outcome, Sandbox
from opengyre.tasks.base import Task
from opengyre.tasks.reward import read_plain, read_reward
from opengyre.tasks.workspace import (
    ANY_SIZE,
    DEFAULT_BYTES,
    WorkspaceTooLargeError,
    discard,
    snapshot,
)

UNSCORED = {
    Ending.NEVER_STARTED: VerdictKind.INFRASTRUCTURE_FAILURE,
    Ending.SANDBOX_DIED: VerdictKind.INFRASTRUCTURE_FAILURE,
    Ending.MODEL_FAILED: VerdictKind.INFRASTRUCTURE_FAILURE,
    Ending.OVERALL_TIMEOUT: VerdictKind.OVERALL_TIMEOUT,
    Ending.CANCELLED: VerdictKind.CANCELLED,
}
"""The other endings are scored: finished or not, the work is what counts."""
CANARY_SCRIPT = "canary.sh"
CANARY_FILE = "canary.json"
LOGS = "/logs"
LOG_FOLDERS = ("agent", "artifacts", "verifier")
"""What Harbor's evaluators may expect to be there."""
DETAIL_BYTES = 300
"""Of the evaluator's last words, kept in a verdict."""


async def evaluate(  # noqa: PLR0913 — the seventh has a default
    task: Task,
    workspace: Path,
    sandbox: Sandbox,
    scratch: Path,
    ending: Ending,
    attempts: int,
    max_bytes: int = DEFAULT_BYTES,
) -> Verdict:
    """Score what is in workspace, in which nothing runs any more.

    scratch is a folder of this evaluation alone: emptied first, removed at the end. attempts >= 1
    tries are made while the evaluator fails. max_bytes is the largest workspace that is preserved.
    """
    if ending in UNSCORED:
        return Verdict(kind=UNSCORED[ending], ending=ending)
    assert attempts >= 1
    kept = scratch / "snapshot"
    await discard(scratch)
    try:
        await snapshot(task, workspace, kept, max_bytes)
        return await _score_in_budget(task, kept, sandbox, ending, attempts)
    except WorkspaceTooLargeError as error:
        return _lowest(task, ending, str(error))
    except SandboxError as error:
        return Verdict(kind=VerdictKind.INFRASTRUCTURE_FAILURE, ending=ending, detail=str(error))
    finally:
        await discard(scratch)


async def _score_in_budget(
    task: Task, kept: Path, sandbox: Sandbox, ending: Ending, attempts: int
) -> Verdict:
    faults: list[str] = []
    for number in range(1, attempts + 1):
        attempt = kept.with_name(f"attempt-{number}")
        try:
            return await _score(task, kept, sandbox, attempt, ending)
        except (EvaluatorError, SandboxError) as error:
            faults.append(f"attempt {number}: {error}")
        finally:
            await discard(attempt)
    return Verdict(kind=VerdictKind.EVALUATOR_FAILURE, ending=ending, detail="; ".join(faults))


async def _score(
    task: Task, kept: Path, sandbox: Sandbox, attempt: Path, ending: Ending
) -> Verdict:
    """One try. Raises EvaluatorError, SandboxError."""
    logs = attempt / "logs"
    for name in LOG_FOLDERS:
        (logs / name).mkdir(parents=True)
    canary = await _canary_script(task, sandbox, attempt)
    await snapshot(task, kept, attempt / "workspace", ANY_SIZE)
    command = _command(task, "test.sh", attempt / "workspace", logs)
    outcome = await sandbox.run(command)
    if outcome.timed_out:
        raise EvaluatorError(f"test.sh ran out of its {task.verifier_timeout_s:g} s")
    if outcome.oom:
        raise EvaluatorError("test.sh ran out of memory")
    canary = _canary_file(logs / "verifier" / CANARY_FILE) or canary
    reward = read_reward(logs / "verifier", task.reward_low, task.reward_high)
    if reward is not None:
        return Verdict(
            kind=VerdictKind.SCORED,
            ending=ending,
            reward=reward.value,
            passed=reward.value >= task.reward_high,
            parts=reward.parts,
        )
    if not canary or outcome.exit_code == 0:
        raise EvaluatorError(f"no reward was written: {_last_words(outcome)}")
    died = f"the canary passed, then the tests died: {_last_words(outcome)}"
    return _lowest(task, ending, died)


def _lowest(task: Task, ending: Ending, why: str) -> Verdict:
    """What the agent's own work made impossible to score."""
    return Verdict(
        kind=VerdictKind.SCORED,
        ending=ending,
        reward=task.reward_low,
        passed=False,
        detail=why,
    )


async def _canary_script(task: Task, sandbox: Sandbox, attempt: Path) -> bool:
    """Run tests/canary.sh, if there is one, where nothing is the agent's.

    True when it passed, False when there is none. Raises EvaluatorError when it failed.
    """
    if not (task.tests / CANARY_SCRIPT).is_file():
        return False
    for name in ("canary", "canary-logs"):
        (attempt / name).mkdir(parents=True)
    command = _command(task, CANARY_SCRIPT, attempt / "canary", attempt / "canary-logs")
    outcome = await sandbox.run(command)
    if outcome.exit_code != 0:
        raise EvaluatorError(f"the canary failed: {_last_words(outcome)}")
    return True


def _canary_file(file: Path) -> bool:
    """What the tests themselves said of their canary. Raises EvaluatorError when it failed."""
    content = read_plain(file)
    if content is None:
        return False
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise EvaluatorError(f"wanted JSON in {file.name}; found {content[:80]!r}") from error
    if not isinstance(found, dict) or found.get("ok") is not True:
        raise EvaluatorError(f"the canary failed: {content[:80]!r}")
    return True


def _command(task: Task, script: str, workspace: Path, logs: Path) -> Command:
    return Command(
        argv=["bash", f"/tests/{script}"],
        cwd=task.workdir,
        timeout_s=task.verifier_timeout_s,
        env={**task.env, **task.verifier_env, "VERIFIER_LOGS": f"{LOGS}/verifier"},
        binds=[
            Bind(task.tests, "/tests"),
            Bind(logs, LOGS, writable=True),
            Bind(workspace, task.workdir, writable=True),
        ],
    )


def _last_words(outcome: Outcome) -> str:
    said = (outcome.stderr or outcome.stdout)[-DETAIL_BYTES:].decode(errors="replace").strip()
    return f"exit code {outcome.exit_code}: {said or 'it said nothing'}"
