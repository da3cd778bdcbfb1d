"""A workspace holds what the environment says, and a failed set-up is a failure of ours."""

from pathlib import Path

import pytest

from opengyre.core.errors import SandboxError
from opengyre.sandbox.base import Sandbox
from opengyre.tasks.load import load_task
from opengyre.tasks.workspace import discard, materialise
from tests.tasks.conftest import WriteTask

SETUP = "environment/setup.sh"


async def test_copies_then_the_setup_script(
    write: WriteTask, tmp_path: Path, sandbox: Sandbox
) -> None:
    task = load_task(write({SETUP: 'pwd > where; cat notes.txt > "$NAME"\n'}))
    task.env["NAME"] = "copied"
    await materialise(task, tmp_path / "into", sandbox)
    found = {path.name: path.read_text() for path in (tmp_path / "into").iterdir()}
    assert found == {"notes.txt": "notes\n", "where": "/work\n", "copied": "notes\n"}


async def test_a_failed_setup_says_what_it_said(
    write: WriteTask, tmp_path: Path, sandbox: Sandbox
) -> None:
    task = load_task(write({SETUP: "echo no luck >&2; exit 4\n"}))
    with pytest.raises(SandboxError, match="ended with 4: no luck"):
        await materialise(task, tmp_path / "into", sandbox)


async def test_discard_deletes_what_is_closed_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    closed = tmp_path / "copy/closed"
    closed.mkdir(parents=True)
    (closed / "file").write_text("")
    closed.chmod(0)
    (tmp_path / "copy/link").symlink_to(outside)
    await discard(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert outside.stat().st_mode & 0o777 == 0o500
