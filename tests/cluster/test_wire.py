"""Frames survive any cut of the stream, and nothing else is read as one."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.cluster import wire
from opengyre.cluster.cell import Channel, SocketClosedError
from opengyre.core.errors import ClusterError
from tests.cluster.conftest import micro_step, request

COMMANDS: list[wire.Command] = [
    wire.Generate(request=request("a"), kv="/dev/shm/kv"),
    wire.Accumulate(micro=micro_step("m", seed=1)),
    wire.MoveOut(request_ids=["a.1"], folder="/dev/shm"),
    wire.Ping(),
    wire.CoreStep(
        executions=4, learning_rate=0.1, gradients=["g"], snapshot=wire.Snapshot("w", 3, 2**32 - 1)
    ),
]


@given(commands=st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=5), data=st.data())
def test_commands_arrive_whole_however_the_stream_is_cut(commands, data):
    asks = [wire.Ask(i, command) for i, command in enumerate(commands)]
    stream = b"".join(map(wire.to_frame, asks))
    cut = data.draw(st.integers(0, len(stream)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs)
        ours.sendall(stream[:cut])
        got = channel.receive(wait=False)
        ours.sendall(stream[cut:])
        while len(got) < len(asks):
            got += channel.receive(wait=True)
        assert got == asks


def test_a_closed_socket_ends_the_cell():
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(SocketClosedError):
        Channel(theirs).receive(wait=True)


def test_an_oversized_frame_is_refused():
    with pytest.raises(ClusterError, match="at most"):
        wire.body_length(b"\xff\xff\xff\xff")


def test_a_foreign_body_is_refused():
    with pytest.raises(ClusterError, match="not a command"):
        wire.read_ask(b"\x93\x01\x02\x03")
    with pytest.raises(ClusterError, match="not a report"):
        wire.read_report(b"\x93\x01\x02\x03")
