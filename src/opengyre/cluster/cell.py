"""A cell's process: one thread that serves commands and, in between, generates.

It blocks on its socket when there is nothing to generate, polls it otherwise, and exits when the
socket closes: a cell never outlives its cluster.
"""

import argparse
import logging
import os
import select
import socket
from typing import Protocol

from opengyre.cluster import wire
from opengyre.core.errors import OpenGyreError
from opengyre.core.records import TokenChunk

RECEIVE_BYTES = 1 << 20
"""One read of the socket."""
logger = logging.getLogger("opengyre.cell")


class SocketClosedError(Exception):
    """The cluster is gone."""


class Channel:
    """The cell's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()

    def receive(self, *, wait: bool) -> list[wire.Ask]:
        """All whole commands that are there; at least one if wait. Raises SocketClosedError."""
        asks: list[wire.Ask] = []
        while self._readable(wait=wait and not asks):
            data = self._sock.recv(RECEIVE_BYTES)
            if not data:
                raise SocketClosedError
            self._buffer += data
            asks += self._whole_frames()
        return asks

    def send(self, report: wire.Report) -> None:
        """Raises SocketClosedError."""
        try:
            self._sock.sendall(wire.to_frame(report))
        except ConnectionError as error:
            raise SocketClosedError from error

    def _readable(self, *, wait: bool) -> bool:
        return bool(select.select([self._sock], [], [], None if wait else 0)[0])

    def _whole_frames(self) -> list[wire.Ask]:
        asks = []
        start = 0
        while len(self._buffer) >= start + wire.HEADER_BYTES:
            body = start + wire.HEADER_BYTES
            end = body + wire.body_length(bytes(self._buffer[start:body]))
            if len(self._buffer) < end:
                break
            asks.append(wire.read_ask(bytes(self._buffer[body:end])))
            start = end
        del self._buffer[:start]
        return asks


class Worker(Protocol):
    """What a cell can do (duties.Duties, and a script in tests)."""

    stopped: bool

    @property
    def busy(self) -> bool:
        """There are tokens to generate now."""
        ...

    def do(self, command: wire.Command) -> wire.Result:
        """Carry out a command."""
        ...

    def generate(self) -> list[TokenChunk]:
        """One engine step."""
        ...


def serve(channel: Channel, worker: Worker) -> None:
    """Until Stop. Raises SocketClosedError when the cluster goes first."""
    while not worker.stopped:
        for ask in channel.receive(wait=not worker.busy):
            channel.send(wire.Answer(ask.number, attempt(worker, ask.command)))
        if worker.busy:
            chunks = worker.generate()
            if chunks:
                channel.send(wire.Chunks(chunks))


def attempt(worker: Worker, command: wire.Command) -> wire.Result:
    """A handler's failure is an answer; what is neither ours nor the machine's fault is a crash."""
    try:
        return worker.do(command)
    except (OpenGyreError, OSError, RuntimeError, ValueError, MemoryError) as error:
        logger.exception("%s failed", type(command).__name__)
        return wire.Failure(kind=type(error).__name__, message=str(error))


def main() -> None:
    """`python -m opengyre.cluster.cell --fd N --cpus A,B`."""
    parser = argparse.ArgumentParser(description="One cell; started by a cluster.")
    parser.add_argument("--fd", type=int, required=True, help="socket to the cluster")
    parser.add_argument("--cpus", required=True, help="CPUs to run on")
    options = parser.parse_args()
    os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})
    logging.basicConfig(level=logging.INFO)
    from opengyre.cluster.duties import Duties  # torch: only now that CPUs are set

    try:
        with socket.socket(fileno=options.fd) as sock:
            serve(Channel(sock), Duties())
    except SocketClosedError:
        logger.info("the cluster is gone")


if __name__ == "__main__":
    main()
