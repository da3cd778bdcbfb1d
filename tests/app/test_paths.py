"""A run folder has one live process, however that process and another one were started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opengyre.app.paths import RunPaths
from opengyre.core.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from opengyre.app.paths import RunPaths
RunPaths.make(Path(sys.argv[1]))
print("owned", flush=True)
time.sleep(600)
"""


def test_another_temporary_folder_does_not_open_it_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, theirs = tmp_path / "run", tmp_path / "theirs"
    theirs.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)],
        env=os.environ | {"TMPDIR": str(theirs)},
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    with holder:
        try:
            assert holder.stdout.readline() == b"owned\n"
            with pytest.raises(UserError, match="stop the run that uses it"):
                RunPaths.make(run)
            with pytest.raises(UserError, match="taken"):
                RunPaths.make(Path(os.path.relpath(run)))
        finally:
            holder.send_signal(signal.SIGKILL)
    RunPaths.make(run).remove_private()


def test_a_folder_that_was_let_go_can_be_had_again(tmp_path: Path) -> None:
    paths = RunPaths.make(tmp_path / "run")
    with pytest.raises(UserError, match="taken"):
        RunPaths.make(tmp_path / "run")
    paths.remove_private()
    paths.remove_private()
    RunPaths.make(tmp_path / "run").remove_private()


def test_clearing_leaves_nothing_but_the_lock(tmp_path: Path) -> None:
    paths = RunPaths.make(tmp_path / "run")
    (paths.folder / "checkpoints" / "step").mkdir(parents=True)
    (paths.folder / "run.sqlite").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (paths.folder / "link").symlink_to(tmp_path / "elsewhere")
    paths.clear()
    with pytest.raises(UserError, match="taken"):
        RunPaths.make(tmp_path / "run")
    assert [found.name for found in paths.folder.iterdir()] == ["owner.lock"]
    assert (tmp_path / "elsewhere").is_dir()
    paths.remove_private()
