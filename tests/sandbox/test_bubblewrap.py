"""What a command in the real bubblewrap can see, and that nothing of it survives."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from opengyre.app.wall import WallClock
from opengyre.core.errors import SandboxError
from opengyre.sandbox.base import Bind, Command, Sandbox
from opengyre.sandbox.bubblewrap import Bubblewrap, find_bwrap
from opengyre.sandbox.cgroup import Controllers, find_controllers
from tests.sandbox.conftest import Script, alive, shell, until


async def test_work_lands_in_the_workspace_and_the_exit_code_comes_back(
    script: Script, workspace: Path
) -> None:
    outcome = await script("echo made > out.txt; echo said; echo cried >&2; exit 7")
    assert (outcome.exit_code, outcome.timed_out, outcome.oom) == (7, False, False)
    assert (outcome.stdout, outcome.stderr) == (b"said\n", b"cried\n")
    assert (workspace / "out.txt").read_text() == "made\n"


async def test_no_other_folder_of_the_host_is_seen(script: Script, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of another execution")
    private = [str(tmp_path / "secret"), str(Path(__file__)), "/etc/shadow", "/root/.bashrc"]
    outcome = await script("\n".join(f"[ -e {path} ] && echo sees {path}" for path in private))
    assert outcome.stdout == b""


async def test_only_its_own_folders_can_be_written(script: Script) -> None:
    closed = ["/usr/x", "/etc/x", "/x", "/dev/x", "/usr/lib/python3/dist-packages/x"]
    opened = ["/app/x", "/tmp/x", "/home/agent/x", "/var/tmp/x", "/run/x"]
    lines = [f"touch {path} 2>/dev/null && echo {path}" for path in closed + opened]
    outcome = await script("\n".join(lines))
    assert outcome.stdout.decode().split() == opened


async def test_there_is_no_network_and_no_loopback_of_the_host(script: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        outcome = await script(
            "python3 -I -S -c \"import socket; socket.create_connection(('127.0.0.1', "
            f'{port}), 2)" 2>&1 | tail -1; tail -n +3 /proc/net/dev | cut -d: -f1'
        )
    refused, *devices = outcome.stdout.decode().splitlines()
    assert "refused" in refused
    assert [device.strip() for device in devices] == ["lo"]


async def test_it_is_an_ordinary_user_without_capabilities(script: Script) -> None:
    outcome = await script("id -un; grep CapEff /proc/self/status; unshare -U true || echo no")
    name, capabilities, nested = outcome.stdout.decode().splitlines()
    assert (name, int(capabilities.split()[1], 16), nested) == ("agent", 0, "no")


async def test_only_the_given_environment_arrives(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "key")
    outcome = await script("env; cat /proc/1/environ", env={"GIVEN": "yes"})
    assert b"HOST_SECRET" not in outcome.stdout
    assert b"GIVEN=yes" in outcome.stdout


async def test_python_packages_of_the_host_are_hidden(script: Script) -> None:
    probe = "import sys, pkgutil; print([m.name for m in pkgutil.iter_modules() if m.name in "
    outcome = await script(f"python3 -c \"{probe} ('pip', 'pytest', 'numpy')])\"")
    assert outcome.stdout.strip() == b"[]"


async def test_a_time_limit_ends_processes_that_left_the_session(
    script: Script, workspace: Path
) -> None:
    outcome = await script("setsid sleep 4711 & touch ready; sleep 4711", timeout_s=0.5)
    assert (outcome.exit_code, outcome.timed_out) == (None, True)
    assert (workspace / "ready").exists()
    assert not alive("4711")


async def test_a_normal_end_leaves_no_background_process(script: Script) -> None:
    outcome = await script("setsid sleep 4712 > /dev/null 2>&1 & exit 0")
    assert outcome.exit_code == 0
    assert not alive("4712")


async def test_cancelling_kills_everything(sandbox: Sandbox, workspace: Path) -> None:
    running = asyncio.ensure_future(sandbox.run(shell("touch ready; sleep 4713", workspace)))
    await until(workspace / "ready")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive("4713")


async def test_output_is_bounded_and_the_end_is_kept(script: Script) -> None:
    outcome = await script("yes | head -c 3000000; echo the end", stdout_limit=1000)
    assert len(outcome.stdout) == 1000
    assert outcome.stdout.endswith(b"the end\n")


HOG = "python3 -I -S -c 'bytearray(400 << 20)'"
CROWD = "i=0; while [ $i -lt 100 ]; do sleep 9 & i=$((i+1)); done; jobs | wc -l"


async def test_the_memory_limit_ends_a_hog(script: Script) -> None:
    outcome = await script(f"{HOG}; echo $?")
    assert outcome.stdout.split()[0] != b"0"


@pytest.mark.skipif(find_controllers().memory is None, reason="no memory control group here")
async def test_a_kill_by_the_memory_limit_is_told(script: Script) -> None:
    outcome = await script(f"exec {HOG}")
    assert (outcome.exit_code, outcome.oom) == (137, True)


async def test_memory_is_limited_without_control_groups(workspace: Path) -> None:
    outcome = await bare_sandbox().run(shell(f"{HOG}; echo $?", workspace))
    assert outcome.stdout.split() == [b"1"]
    assert b"MemoryError" in outcome.stderr


@pytest.mark.skipif(find_controllers().pids is None, reason="no process control group here")
async def test_the_process_limit_holds(script: Script) -> None:
    outcome = await script(CROWD)
    assert b"ork" in outcome.stderr  # "Cannot fork" or "fork: …", by shell


async def test_control_groups_are_removed(script: Script) -> None:
    await script("sleep 9", timeout_s=0.2)
    found = find_controllers()
    for parent in (found.memory, found.pids):
        assert parent is None or not list(parent.glob(f"opengyre-{os.getpid()}-*"))


async def test_a_missing_program_is_127(script: Script, sandbox: Sandbox, workspace: Path) -> None:
    outcome = await script("exec no-such-program")
    assert outcome.exit_code == 127


async def test_a_bind_that_cannot_be_made_is_a_sandbox_error(sandbox: Sandbox) -> None:
    gone = Command(argv=["true"], cwd="/", timeout_s=9, binds=[Bind(Path("/no/such"), "/app")])
    with pytest.raises(SandboxError, match="no/such"):
        await sandbox.run(gone)


def bare_sandbox() -> Bubblewrap:
    bwrap = find_bwrap()
    assert bwrap is not None
    return Bubblewrap(bwrap, 128 << 20, 48, WallClock(), Controllers(None, None, 2))


async def test_executions_at_once_see_nothing_of_each_other(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    async def one(name: str) -> bytes:
        (tmp_path / name).mkdir()
        text = f"echo {name} > mine; sleep 0.3; ls /app /tmp; ps -e 2>/dev/null | grep -c sleep"
        return (await sandbox.run(shell(text, tmp_path / name))).stdout

    seen = await asyncio.gather(*(one(f"w{index}") for index in range(4)))
    assert len(set(seen)) == 1
    assert [(tmp_path / f"w{i}/mine").read_text() for i in range(4)] == [
        f"w{i}\n" for i in range(4)
    ]


async def test_no_file_of_ours_is_left_open_inside(script: Script) -> None:
    outcome = await script("ls /proc/$$/fd")
    assert outcome.stdout.split() == [b"0", b"1", b"2"]
