"""A task as the rest of the system sees it.

Invariant: a Task was checked when it was loaded: its files exist and stay inside its folder.
"""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class CopyStep:
    """One COPY of a Dockerfile, resolved."""

    source: Path
    """A file or folder of the task's environment folder; of a folder, the contents are copied."""
    target: PurePosixPath
    """Where it goes, relative to the work folder: a folder for a folder, a file for a file."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task folder."""

    task_id: str
    """The folder's name."""
    folder: Path
    instruction: str
    workdir: str
    """Absolute path of the work folder inside the sandbox."""
    copies: tuple[CopyStep, ...] = ()
    """What makes up the workspace before anyone works in it."""
    setup: Path | None = None
    """A bash script that finishes the workspace (environment/setup.sh)."""
    env: dict[str, str] = field(default_factory=dict)
    """For the agent, the set-up script and the evaluator."""
    setup_timeout_s: float = 600.0
    agent_timeout_s: float | None = None
    """None: the task sets no limit."""
    verifier_timeout_s: float = 600.0
    verifier_env: dict[str, str] = field(default_factory=dict)
    solution_env: dict[str, str] = field(default_factory=dict)
    reward_low: float = 0.0
    reward_high: float = 1.0
    """A reward outside [low, high] is a fault of the evaluator; high is a pass."""
    difficulty: str = ""
    family: str = ""
    notes: tuple[str, ...] = ()
    """What the folder asks for and a local sandbox does not give, in words for people."""

    @property
    def tests(self) -> Path:
        return self.folder / "tests"

    @property
    def solution(self) -> Path:
        return self.folder / "solution"
