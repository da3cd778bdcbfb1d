"""A small hand-written task, a real sandbox, and a way to write broken folders."""

from collections.abc import Callable
from pathlib import Path

import pytest

from opengyre.app.wall import WallClock
from opengyre.config.run import SandboxSection
from opengyre.sandbox.base import Sandbox
from opengyre.sandbox.make import make_sandbox

FILES = {
    "task.toml": 'schema_version = "1.4"\n[verifier]\ntimeout_sec = 20.0\n'
    '[environment]\nnetwork_mode = "no-network"\n',
    "instruction.md": "Say hello in hello.txt.\n",
    "environment/Dockerfile": "FROM debian\nWORKDIR /work\nCOPY files/ ./\n",
    "environment/files/notes.txt": "notes\n",
    "solution/solve.sh": "echo hello > hello.txt\n",
    "tests/test.sh": 'if [ "$(cat hello.txt)" = hello ]; then r=1; else r=0; fi\n'
    "echo $r > /logs/verifier/reward.txt\n",
}

WriteTask = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteTask:
    """write(path=text, …) gives a task folder; None leaves a file out."""

    def make(changes: dict[str, str | None] | None = None, name: str = "hello") -> Path:
        folder = tmp_path / "tasks" / name
        for path, text in (FILES | (changes or {})).items():
            if text is not None:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text)
        return folder

    return make


@pytest.fixture
def sandbox() -> Sandbox:
    section = SandboxSection.model_validate({"memory_mb": 512, "processes": 64})
    return make_sandbox(section, WallClock())
