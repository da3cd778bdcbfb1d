"""Unmodified agent programs work on a file in the real sandbox, against a scripted model."""

from pathlib import Path

import pytest

from opengyre.app.wall import WallClock
from opengyre.config.run import HarnessSection, SandboxSection
from opengyre.harness.base import HarnessOutcome, HarnessRun
from opengyre.harness.make import make_harness
from opengyre.harness.run import run_harness
from opengyre.sandbox.make import make_sandbox
from tests.harness.scripted import Scripted, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
"""mini-swe-agent alone needs 7 CPU seconds for its imports, on a machine that may be shared."""
BARE = ["--bare", "--tools", "Bash", "--system-prompt", "You fix files."]


async def run_program(
    name: str, args: list[str], scripted: Scripted, folder: Path, kind: str = "bubblewrap"
) -> HarnessOutcome:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    socket = folder / "door" / "proxy.sock"
    socket.parent.mkdir()
    sandbox = make_sandbox(SandboxSection.model_validate({"kind": kind}), WallClock())
    harness = make_harness(HarnessSection.model_validate({"name": name}))
    run = HarnessRun(
        execution_id="exec-1",
        instruction="Write hi into out.txt",
        workspace=workspace,
        socket=socket,
        base_path="/run/exec-1",
        key="key-1",
        model="policy",
        timeout_s=120.0,
        args=args,
    )
    async with serving(scripted, run.socket):
        return await run_harness(harness, run, sandbox)


@pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("claude-code", BARE, "bubblewrap"),
        ("claude-code", BARE, "none"),
        ("codex", [], "bubblewrap"),
        ("mini-swe-agent", [], "bubblewrap"),
    ],
)
async def test_a_real_program_works_through_the_socket(
    name: str, args: list[str], kind: str, tmp_path: Path
) -> None:
    scripted = Scripted(["echo hi > out.txt"])
    outcome = await run_program(name, args, scripted, tmp_path, kind)
    assert outcome.exit_code == 0, (outcome, scripted.requests)
    assert (tmp_path / "workspace/out.txt").read_text() == "hi\n"
    assert len(scripted.requests) == 2
    assert all("key-1" in str(headers) for headers in scripted.headers)
