"""The forwarder: bytes pass both ways, the child's exit code comes back."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opengyre.sandbox import forward

CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
    link.sendall(b"x" * 300000)
    link.shutdown(socket.SHUT_WR)
    got = b"".join(iter(lambda: link.recv(65536), b""))
print(len(got), got[-3:].decode())
sys.exit(9)
"""


def start(path: Path, *program: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-S", forward.__file__, "0", str(path), *program]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)


def test_bytes_pass_both_ways_through_half_closed_connections(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        echo = threading.Thread(target=_count, args=(server,))
        echo.start()
        done = start(tmp_path / "s", sys.executable, "-c", CLIENT, forward.PORT_WORD)
        echo.join()
    assert (done.returncode, done.stdout) == (9, "300003 end\n")


def _count(server: socket.socket) -> None:
    link, _ = server.accept()
    with link:
        data = b"".join(iter(lambda: link.recv(65536), b""))
        link.sendall(data + b"end")


@pytest.mark.parametrize(("script", "code"), [("exit 4", 4), ("kill -9 $$", 137)])
def test_the_exit_code_is_the_childs(script: str, code: int, tmp_path: Path) -> None:
    assert start(tmp_path / "none", "/bin/sh", "-c", script).returncode == code


def test_a_missing_program_is_127(tmp_path: Path) -> None:
    assert start(tmp_path / "none", "no-such-program").returncode == 127
