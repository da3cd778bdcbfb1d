"""Messages between a cluster and its cells: length-prefixed msgpack frames over a socket pair.

The cluster sends Ask frames; a cell answers each one once, in order, and sends Chunks in between. A
cell handles one message at a time, so an answer proves that everything before it is done. Commands
are made by the cluster and read by a cell; results the other way.
"""

import struct

import msgspec
from msgspec import Struct

from opengyre.core.errors import ClusterError
from opengyre.core.records import GenerateRequest, MicroStep, TokenChunk
from opengyre.learner.stats import MicroStats, StepStats

MAX_FRAME = 1 << 28
"""256 MiB: a micro-step of a million tokens is about 30 MB; anything larger is a fault."""
_LENGTH = struct.Struct(">I")


class Snapshot(Struct, frozen=True):
    """Weights in shared memory. Made by the core's cell; read by every cell."""

    name: str
    stamp: int
    """Optimiser steps taken: names the content, where a slot's name is reused."""
    checksum: int = 0


class Setup(Struct, frozen=True, kw_only=True, tag=True):
    """The first command. Answered with Done once the model is loaded."""

    model_folder: str
    """Config and tokenizer, and the weights when there is no checkpoint."""
    checkpoint: str | None
    """Weights to start from and, for the core, the optimiser's state."""
    core: bool
    shared_folder: str
    learner: str
    """LearnerSection as JSON."""
    block_tokens: int
    kv_tokens: int
    context_tokens: int
    temperature: float
    threads: int
    version: int
    """Of the weights to start from."""
    stamp: int
    """Optimiser steps behind the weights to start from, as in Snapshot."""


class Generate(Struct, frozen=True, kw_only=True, tag=True):
    """Serve a request. Answered with Accepted or Failure; its tokens come as Chunks."""

    request: GenerateRequest
    kv: str | None = None
    """Blob with the KV of a request that was moved here."""


class Cancel(Struct, frozen=True, kw_only=True, tag=True):
    """Forget a request. Answered with Done, also when it is not known (any more)."""

    request_id: str


class MoveOut(Struct, frozen=True, kw_only=True, tag=True):
    """Export these requests (all that there are) and forget them. Answered with MovedOut."""

    request_ids: list[str]
    folder: str | None
    """None: without their KV."""


class Pause(Struct, frozen=True, kw_only=True, tag=True):
    """Generate nothing until Resume. Answered with Done."""


class Resume(Struct, frozen=True, kw_only=True, tag=True):
    """Generate again. Answered with Done."""


class ToTraining(Struct, frozen=True, kw_only=True, tag=True):
    """Free the KV memory and load these weights. Answered with Loaded."""

    snapshot: Snapshot


class LoadVersion(Struct, frozen=True, kw_only=True, tag=True):
    """Serve these weights as this version; requests go on. Answered with Loaded."""

    version: int
    snapshot: Snapshot


class PullWeights(Struct, frozen=True, kw_only=True, tag=True):
    """Load these weights for training. Answered with Loaded."""

    snapshot: Snapshot


class WriteSnapshot(Struct, frozen=True, kw_only=True, tag=True):
    """Write the core's weights to shared memory. Answered with Loaded."""

    snapshot: Snapshot


class Accumulate(Struct, frozen=True, kw_only=True, tag=True):
    """One forward-backward. Answered with Accumulated."""

    micro: MicroStep


class ExportGradients(Struct, frozen=True, kw_only=True, tag=True):
    """Write the gradients to shared memory and zero them. Answered with Done."""

    name: str


class CoreStep(Struct, frozen=True, kw_only=True, tag=True):
    """Add these gradients to the core's own, step, write the new snapshot. Answered with Stepped."""

    executions: int
    learning_rate: float
    gradients: list[str]
    snapshot: Snapshot


class Save(Struct, frozen=True, kw_only=True, tag=True):
    """Write a checkpoint of weights and optimiser state. Answered with Saved."""

    root: str
    step: int
    version: int
    keep: int
    snapshot: Snapshot
    """The core's newest weights; loaded for the save if the cell serves older ones."""


class Ping(Struct, frozen=True, kw_only=True, tag=True):
    """Answered with Done: the cell's loop turns."""


class Stop(Struct, frozen=True, kw_only=True, tag=True):
    """Exit. Answered with Done."""


Command = (
    Setup
    | Generate
    | Cancel
    | MoveOut
    | Pause
    | Resume
    | ToTraining
    | LoadVersion
    | PullWeights
    | WriteSnapshot
    | Accumulate
    | ExportGradients
    | CoreStep
    | Save
    | Ping
    | Stop
)


class Done(Struct, frozen=True, kw_only=True, tag=True):
    """It is done."""


class Accepted(Struct, frozen=True, kw_only=True, tag=True):
    """The engine has the request."""

    with_kv: bool
    """Its KV was imported; otherwise the prompt is computed."""


class Moved(Struct, frozen=True):
    """A request that left a cell. Made by the source cell; read by the cluster."""

    request_id: str
    kv: str | None
    """Path of its KV blob; None: recompute."""


class MovedOut(Struct, frozen=True, kw_only=True, tag=True):
    """All requests that the cell had."""

    requests: list[Moved]


class Loaded(Struct, frozen=True, kw_only=True, tag=True):
    """Checksum of the weights that the cell now has (or wrote)."""

    checksum: int


class Accumulated(Struct, frozen=True, kw_only=True, tag=True):
    """Gradients of the micro-step are in the cell's buffers."""

    stats: MicroStats


class Stepped(Struct, frozen=True, kw_only=True, tag=True):
    """The optimiser has stepped and the new snapshot is written."""

    stats: StepStats
    checksum: int


class Saved(Struct, frozen=True, kw_only=True, tag=True):
    """The checkpoint is whole and on the disk."""

    folder: str


class Failure(Struct, frozen=True, kw_only=True, tag=True):
    """A handler raised. The cell lives on."""

    kind: str
    """Name of the exception's class."""
    message: str


Result = Done | Accepted | MovedOut | Loaded | Accumulated | Stepped | Saved | Failure


class Ask(Struct, frozen=True):
    """Frame from the cluster to a cell."""

    number: int
    command: Command


class Answer(Struct, frozen=True, tag=True):
    """Frame from a cell: the result of the Ask with that number."""

    number: int
    result: Result


class Chunks(Struct, frozen=True, tag=True):
    """Frame from a cell: tokens just generated."""

    chunks: list[TokenChunk]


Report = Answer | Chunks

_encoder = msgspec.msgpack.Encoder()
_ask_decoder = msgspec.msgpack.Decoder(Ask)
_report_decoder = msgspec.msgpack.Decoder[Report](Report)


def to_frame(message: Ask | Report) -> bytes:
    """Raises ClusterError for a message over MAX_FRAME."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        raise ClusterError(f"wanted a message of at most {MAX_FRAME} bytes, found {len(body)}")
    return _LENGTH.pack(len(body)) + body


HEADER_BYTES = _LENGTH.size
"""Bytes in front of each frame's body."""


def body_length(header: bytes) -> int:
    """Raises ClusterError for a length over MAX_FRAME."""
    length: int = _LENGTH.unpack(header)[0]
    if length > MAX_FRAME:
        raise ClusterError(f"wanted a frame of at most {MAX_FRAME} bytes, found {length}")
    return length


def read_ask(body: bytes) -> Ask:
    """Raises ClusterError for a body that is no Ask."""
    try:
        return _ask_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ClusterError(f"not a command: {error}") from error


def read_report(body: bytes) -> Report:
    """Raises ClusterError for a body that is no Answer or Chunks."""
    try:
        return _report_decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ClusterError(f"not a report of a cell: {error}") from error
