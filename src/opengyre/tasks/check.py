"""Are these tasks worth training on? Doing nothing must score the lowest, the solution the highest.

Invariant: a result without faults means that both were seen to happen, through the same evaluate
that scores executions.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from opengyre.core.errors import EvaluatorError, OpenGyreError, SandboxError
from opengyre.core.reasons import Ending
from opengyre.sandbox.base import Bind, Command, Sandbox
from opengyre.tasks.base import Task
from opengyre.tasks.evaluate import evaluate
from opengyre.tasks.workspace import discard, materialise

SOLUTION_TIMEOUT_S = 600.0
"""For solutions of tasks that give the agent no limit."""


@dataclass
class CheckResult:
    """What was found out about one task."""

    task_id: str
    nothing: float | None = None
    """Reward of the untouched workspace."""
    solution: float | None = None
    """Reward of the solution."""
    faults: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.faults


async def check_tasks(
    tasks: list[Task], sandbox: Sandbox, scratch: Path, at_once: int = 2
) -> list[CheckResult]:
    """Check each task, at_once at a time; results in the order of tasks."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int, task: Task) -> CheckResult:
        async with gate:
            folder = scratch / f"check-{number}"
            try:
                return await check_task(task, sandbox, folder)
            finally:
                await discard(folder)

    return list(await asyncio.gather(*(one(n, task) for n, task in enumerate(tasks))))


async def check_task(task: Task, sandbox: Sandbox, scratch: Path) -> CheckResult:
    """scratch is a new folder for copies, left to the caller."""
    result = CheckResult(task.task_id, notes=task.notes)
    try:
        result.nothing = await _reward(task, sandbox, scratch / "nothing", solved=False)
    except OpenGyreError as error:
        result.faults.append(f"doing nothing: {error}")
    try:
        result.solution = await _reward(task, sandbox, scratch / "solution", solved=True)
    except OpenGyreError as error:
        result.faults.append(f"the solution: {error}")
    _judge(task, result)
    return result


async def _reward(task: Task, sandbox: Sandbox, scratch: Path, *, solved: bool) -> float:
    """Of a fresh workspace, untouched or solved. Raises SandboxError, EvaluatorError."""
    workspace = scratch / "workspace"
    await materialise(task, workspace, sandbox)
    if solved:
        await solve(task, workspace, sandbox)
    verdict = await evaluate(task, workspace, sandbox, scratch / "copies", Ending.FINISHED, 1)
    if verdict.reward is None:
        raise EvaluatorError(f"{verdict.kind}: {verdict.detail}")
    return verdict.reward


async def solve(task: Task, workspace: Path, sandbox: Sandbox) -> None:
    """Run solution/solve.sh in the workspace. Raises SandboxError when it fails or is missing."""
    if not (task.solution / "solve.sh").is_file():
        raise SandboxError(f"wanted solution/solve.sh; found none; write one into {task.folder}")
    outcome = await sandbox.run(
        Command(
            argv=["bash", "/solution/solve.sh"],
            cwd=task.workdir,
            timeout_s=task.agent_timeout_s or SOLUTION_TIMEOUT_S,
            env={**task.env, **task.solution_env},
            binds=[Bind(task.solution, "/solution"), Bind(workspace, task.workdir, writable=True)],
        )
    )
    if outcome.exit_code != 0:
        said = outcome.stderr[-300:].decode(errors="replace").strip()
        raise SandboxError(f"solution/solve.sh ended with {outcome.exit_code}: {said}")


def _judge(task: Task, result: CheckResult) -> None:
    if result.nothing is not None and result.nothing != task.reward_low:
        result.faults.append(
            f"doing nothing scores {result.nothing:g}; wanted {task.reward_low:g}: leave tests "
            "that pass in the untouched workspace out of the reward's first factor"
        )
    if result.solution is not None and result.solution != task.reward_high:
        result.faults.append(
            f"the solution scores {result.solution:g}; wanted {task.reward_high:g}"
        )
