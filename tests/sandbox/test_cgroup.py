"""Control groups of both versions, on folders that stand in for the kernel's."""

import os
from pathlib import Path

from opengyre.sandbox.cgroup import find_controllers, grouped


def group(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in {"cgroup.procs": "", **files}.items():
        (folder / name).write_text(text)
    return folder


def membership(tmp_path: Path, text: str) -> Path:
    (tmp_path / "cgroup").write_text(text)
    return tmp_path / "cgroup"


def test_version_1_uses_a_child_of_our_own_group(tmp_path: Path) -> None:
    mount = tmp_path / "fs"
    memory = group(mount / "memory/jobs/7")
    found = find_controllers(membership(tmp_path, "4:memory:/jobs/7\n8:pids:/\n0::/\n"), mount)
    assert (found.memory, found.pids, found.version) == (memory, None, 1)


def test_version_2_uses_the_nearest_group_that_hands_controllers_on(tmp_path: Path) -> None:
    mount = tmp_path / "fs"
    parent = group(mount / "user.slice", **{"cgroup.subtree_control": "cpu memory pids"})
    group(parent / "session.scope", **{"cgroup.subtree_control": ""})
    found = find_controllers(membership(tmp_path, "0::/user.slice/session.scope\n"), mount)
    assert (found.memory, found.pids, found.version) == (parent, parent, 2)


def test_nothing_is_found_where_nothing_can_be_made(tmp_path: Path) -> None:
    found = find_controllers(membership(tmp_path, "0::/gone\n"), tmp_path / "fs")
    assert (found.memory, found.pids) == (None, None)


def test_real_groups_hold_their_limits_and_go() -> None:
    found = find_controllers()
    with grouped(found, 64 << 20, 9) as made:
        for file in made.process_files:
            assert f"opengyre-{os.getpid()}-" in str(file)
            assert file.exists()
        assert made.oom_kills() == 0
    assert not any(file.exists() for file in made.process_files)
