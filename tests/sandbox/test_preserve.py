"""A hostile workspace cannot reach out of itself through a copy."""

import os
import socket
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opengyre.sandbox.preserve import leads_out, preserve

WHOLE = 1 << 30


def test_files_folders_modes_and_inner_links_are_kept(workspace: Path, tmp_path: Path) -> None:
    (workspace / "sub/deep").mkdir(parents=True)
    (workspace / "sub/run.sh").write_text("#!/bin/sh\n")
    (workspace / "sub/run.sh").chmod(0o4755)
    (workspace / "sub/deep/up").symlink_to("../run.sh")
    (workspace / "whole").symlink_to("/app/sub")
    copied = preserve(workspace, tmp_path / "copy", WHOLE, mounted_at="/app")
    assert (copied.files, copied.refused, copied.cut) == (3, [], False)
    assert (tmp_path / "copy/sub/run.sh").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "copy/sub/deep/up").readlink() == Path("../run.sh")
    assert (tmp_path / "copy/whole").is_symlink()


def test_links_that_lead_out_and_special_files_stay_behind(workspace: Path, tmp_path: Path) -> None:
    (workspace / "here").symlink_to(".")
    (workspace / "etc").symlink_to("/etc")
    (workspace / "up").symlink_to("../secret")
    (workspace / "around").symlink_to("here/here/../../secret")
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(workspace / "socket"))
    copied = preserve(workspace, tmp_path / "copy", WHOLE)
    assert copied.refused == ["around", "etc", "pipe", "socket", "up"]
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["here"]


def test_the_size_limit_holds_for_sparse_files_too(workspace: Path, tmp_path: Path) -> None:
    (workspace / "a").write_bytes(b"x" * 100)
    with (workspace / "b").open("wb") as sparse:
        sparse.truncate(1 << 40)
    copied = preserve(workspace, tmp_path / "copy", 1000)
    assert (copied.cut, copied.total_bytes) == (True, 100)


names = st.sampled_from(["a", "b", "d"])
goals = st.lists(st.sampled_from(["a", "b", "d", "..", "."]), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(links=st.dictionaries(st.tuples(st.sampled_from(["", "d"]), names), goals, max_size=5))
def test_no_kept_link_ever_resolves_outside(
    tmp_path_factory: pytest.TempPathFactory, links: dict[tuple[str, str], list[str]]
) -> None:
    base = tmp_path_factory.mktemp("links")
    (base / "work/d").mkdir(parents=True)
    for (folder, name), goal in links.items():
        place = base / "work" / folder / name
        if not place.is_symlink() and not place.exists():
            place.symlink_to("/".join(goal))
    preserve(base / "work", base / "copy", WHOLE)
    for path in (base / "copy").rglob("*"):
        assert Path(os.path.realpath(path)).is_relative_to(base / "copy")


def test_absolute_goals_are_inside_only_under_the_mount() -> None:
    link = PurePosixPath("x")
    assert not leads_out(link, PurePosixPath("/app/y"), "/app")
    assert leads_out(link, PurePosixPath("/apple"), "/app")
    assert leads_out(link, PurePosixPath("/app/../etc"), "/app")
    assert leads_out(link, PurePosixPath("/app/y"), "")
