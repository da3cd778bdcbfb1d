"""Another proxy on the same calls: started by a command of the user's, in front of an instant server.

Invariant: the peer gets byte for byte the bodies that ours got, over one connection, and its CPU is
that of the command and of all processes below it; the server behind it is in the bench's own process.
"""

import contextlib
import json
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opengyre.app.bench.door import ANSWER
from opengyre.app.bench.talk import Caller, tree_cpu_s
from opengyre.core.errors import UserError
from opengyre.core.protocols import Clock

START_S = 180.0
"""How long a peer may take to come up; Python programs with many imports take a minute."""
SETTLE_S = 2.0
"""What a peer gets to finish work that it put off, before its CPU is read."""
WARM_CALLS = 3

REPLY = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "policy",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": ANSWER},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()


class _Instant(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Any call: read, and the same reply."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — its parent's name
        """Say nothing."""


def measure_peer(
    command: str, bodies: Sequence[Sequence[bytes]], path: str, clock: Clock
) -> list[float]:
    """CPU milliseconds per call, by length. Raises UserError.

    command: {port} is where the peer shall listen, {upstream} the URL of the server behind it.
    """
    with (
        _upstream() as upstream,
        _peer(command, upstream, clock) as (pid, port),
        contextlib.closing(Caller(port, path)) as caller,
    ):
        found = []
        for calls in bodies:
            for body in calls[:WARM_CALLS]:
                caller.call(body)
            _wait(SETTLE_S)
            before = tree_cpu_s(pid)
            for body in calls:
                caller.call(body)
            _wait(SETTLE_S)
            found.append(1e3 * (tree_cpu_s(pid) - before) / len(calls))
    return found


@contextlib.contextmanager
def _upstream() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Instant)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _peer(command: str, upstream: str, clock: Clock) -> Iterator[tuple[int, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = shlex.split(command.replace("{port}", str(port)).replace("{upstream}", upstream))
    try:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise UserError("a command that starts the peer", str(error), "mend --peer") from error
    try:
        _await(process, port, clock)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(timeout=30)


def _await(process: "subprocess.Popen[bytes]", port: int, clock: Clock) -> None:
    deadline = clock.now() + START_S
    while clock.now() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        _wait(0.2)
    found = "it ended at once" if process.poll() is not None else "nothing listens there"
    raise UserError(f"the peer at port {port}", found, "try the command of --peer by hand")


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)
