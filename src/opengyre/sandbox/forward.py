"""Inside a sandbox: 127.0.0.1:PORT becomes a unix socket, for the length of one program.

Run as `python3 -I -S forward.py PORT SOCKET PROGRAM ARG…`; port 0 takes any free one, and the word
OPENGYRE_PORT in the program's arguments and environment becomes the port that was taken.

Invariant: the program starts after the port listens, and this process exits with its code (128 + n
when signal n ended it). Only the standard library, and little of it: this starts once an execution.
"""

import os
import socket
import sys
from _thread import start_new_thread

PORT_WORD = "OPENGYRE_PORT"
"""Stands for the port in arguments and environment."""
CHUNK = 64 * 1024
"""Bytes moved at a time."""
BACKLOG = 128
"""Connections that may wait: a harness opens a few."""


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy until source ends, then tell sink; a broken side ends both."""
    try:
        while piece := source.recv(CHUNK):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (source, sink):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


def join(client: socket.socket, path: str) -> None:
    """Serve one connection."""
    upstream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with client, upstream:
        try:
            upstream.connect(path)
        except OSError:
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start_new_thread(pump, (client, upstream))
        pump(upstream, client)
        try:
            client.shutdown(socket.SHUT_RD)
        except OSError:
            return  # the program hung up first


def serve(listener: socket.socket, path: str) -> None:
    """Accept for ever."""
    while True:
        client, _ = listener.accept()
        start_new_thread(join, (client, path))


def main(port: str, path: str, program: list[str]) -> int:
    """Listen, run the program, return its exit code."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(BACKLOG)
    taken = str(listener.getsockname()[1])
    start_new_thread(serve, (listener, path))
    argv = [word.replace(PORT_WORD, taken) for word in program]
    env = {name: value.replace(PORT_WORD, taken) for name, value in os.environ.items()}
    try:
        child = os.posix_spawnp(argv[0], argv, env)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        return 127
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    exit_code = main(sys.argv[1], sys.argv[2], sys.argv[3:])
    sys.stderr.flush()
    os._exit(exit_code)
