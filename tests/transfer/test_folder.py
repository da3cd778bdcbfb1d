"""The run's shared-memory folder: private, one owner, no leftovers."""

import pytest

from opengyre.core.errors import TransferError
from opengyre.transfer.folder import ShmDir


def test_it_is_private_and_goes_when_closed(tmp_path):
    with ShmDir(tmp_path / "shm") as shm:
        assert shm.path.stat().st_mode & 0o777 == 0o700
        (shm.path / "kv").write_text("x")
    assert not (tmp_path / "shm").exists()
    shm.close()


def test_leftovers_of_a_dead_owner_are_removed(tmp_path):
    left = tmp_path / "shm"
    left.mkdir(mode=0o755)
    (left / "weights").write_text("old")
    (left / "kv").mkdir()
    (left / "kv" / "blob").write_text("old")
    with ShmDir(left) as shm:
        assert [p.name for p in shm.path.iterdir()] == ["owner.lock"]
        assert shm.path.stat().st_mode & 0o777 == 0o700


def test_a_live_owner_keeps_its_folder(tmp_path):
    with ShmDir(tmp_path / "shm") as shm:
        (shm.path / "kv").write_text("x")
        with pytest.raises(TransferError, match="live run"):
            ShmDir(tmp_path / "shm")
        assert (shm.path / "kv").exists()


def test_links_and_files_are_not_followed(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        with pytest.raises(TransferError, match="remove it"):
            ShmDir(tmp_path / name)
    assert (tmp_path / "victim" / "precious").exists()


def test_a_run_has_one_folder_and_falls_back_into_its_own(tmp_path):
    memory = tmp_path / "memory"
    memory.mkdir()
    run = tmp_path / "run"
    run.mkdir()
    with ShmDir.for_run(run, memory) as one, ShmDir.for_run(tmp_path, memory) as other:
        assert one.path.parent == memory
        assert one.path != other.path
    with ShmDir.for_run(run, tmp_path / "none") as fallback:
        assert fallback.path == run / "shm"
