"""Listens on a unix socket, a TCP port of this machine, or both.

Invariant: a socket is bound before anything is started, so a port in use is an error at once and
never a server that nobody reaches.
"""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from opengyre.core.errors import UserError

HOST = "127.0.0.1"
"""Harnesses run on this machine; nothing else may reach the door."""
LONGEST_SOCKET_PATH = 107
"""What Linux takes for a unix socket's path."""
GRACE_S = 5
"""Seconds that open connections get when the server stops; by then harnesses are dead."""


class _Quiet(uvicorn.Server):
    """Leaves signals to the program that it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Serving:
    """A running server."""

    def __init__(self, server: uvicorn.Server, sockets: list[socket.socket], port: int | None):
        self.port = port
        self._server, self._sockets = server, sockets
        self._paths = [
            Path(found.getsockname()) for found in sockets if found.family == socket.AF_UNIX
        ]
        self._loop = asyncio.ensure_future(server.main_loop())

    async def stop(self) -> None:
        """Take no more requests, let the open ones end, free the port and the socket."""
        self._server.should_exit = True
        await self._loop
        await self._server.shutdown(self._sockets)
        for path in self._paths:
            path.unlink(missing_ok=True)


async def serve(
    app: ASGIApp, *, socket_path: Path | None = None, port: int | None = None
) -> Serving:
    """Start; port 0 takes any free one. Raises UserError when an address cannot be had."""
    sockets = []
    if port is not None:
        sockets.append(_listen_tcp(port))
        port = sockets[0].getsockname()[1]
    if socket_path is not None:
        sockets.append(_listen_unix(socket_path))
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=GRACE_S,
    )
    config.load()
    server = _Quiet(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets)
    return Serving(server, sockets, port)


def _listen_tcp(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(
            f"TCP port {port} of {HOST}",
            "it is in use" if error.errno == errno.EADDRINUSE else str(error),
            "stop the other program, or set proxy.port = 0 for any free port",
        ) from error
    return listener


def _listen_unix(path: Path) -> socket.socket:
    if len(str(path).encode()) > LONGEST_SOCKET_PATH:
        raise UserError(
            f"a socket path of at most {LONGEST_SOCKET_PATH} bytes", str(path), "use a shorter one"
        )
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UserError(f"a socket at {path}", str(error), "use another folder") from error
    return listener


def _clear(path: Path) -> None:
    """Remove a socket that a dead server left; refuse to touch anything else."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise UserError(f"a socket at {path}", "another server listens there", "stop it first")
