"""Proxy CPU per call as a conversation grows, against encoding all of it again, and against a peer.

Invariant: each length is reached by real calls through the real path, and every measured call adds
the same few tokens; CPU is that of the whole process, read from the kernel. The baseline only decodes
the body, renders and encodes: no network, no record, so the ratio is never flattered by those.
"""

import contextlib
import gc
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from tokenizers import Tokenizer

from opengyre.app.bench.door import ANSWER, DoorSettings
from opengyre.app.bench.talk import Caller, DoorProcess, Talk, corpus
from opengyre.core.fakes import CountingIds
from opengyre.proxy.dialects.chat import ChatDialect
from opengyre.proxy.families.base import Family, render_conversation
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.proxy.history import History
from opengyre.proxy.messages import Message, ToolCall
from opengyre.proxy.reading import Reader

GROWTH_TOKENS = 1500
"""Of a tool result while a conversation grows: a typical file or test log."""
RESULT_CHARS = 300
"""Of a tool result in a measured call: less than a hundred tokens."""
WARM_CALLS = 2
"""Calls of that kind before those that count."""


class Phases(Struct, kw_only=True):
    """CPU milliseconds of one call's parts, each the median; measured beside the server."""

    find: float
    """Digest of the bytes that were read before."""
    read: float
    """Parse what is new, and the head."""
    plan: float
    """Walk the trie, encode what is new, copy the prompt's ids."""
    keep: float
    """Let later calls go on from this one."""


class AtLength(Struct, kw_only=True):
    """One length of history."""

    nominal: str
    """1k, 10k, 100k, 1M: the length that it stands for."""
    history_tokens: int
    """Prompt tokens of the measured calls: the mean."""
    body_bytes: int
    turns: int
    cpu_ms: float
    """Of the proxy's process per call: the mean."""
    encoded_tokens: float
    """Per call."""
    reencoding_ms: float
    """CPU to decode the same body, render and encode all of it, once: the fastest of two."""
    phases: Phases
    resident_bytes: int
    """Growth of the process since before the first call."""
    peer_cpu_ms: float | None = None


class ProxyResult(Struct, kw_only=True):
    """Made by measure_proxy; read by the table and the JSON file."""

    lengths: list[AtLength]
    calls_each: int
    tokenizer: str
    vocabulary: int
    peer: str | None = None

    @property
    def cpu_ms_by_history(self) -> dict[str, float]:
        """By the nominal length."""
        return {one.nominal: one.cpu_ms for one in self.lengths}

    @property
    def speedup_over_reencoding(self) -> dict[str, float]:
        """Likewise."""
        return {one.nominal: one.reencoding_ms / one.cpu_ms for one in self.lengths}

    @property
    def peer_over_ours(self) -> dict[str, float]:
        """Likewise, where a peer was measured."""
        return {
            one.nominal: one.peer_cpu_ms / one.cpu_ms
            for one in self.lengths
            if one.peer_cpu_ms is not None
        }


def name(tokens: int) -> str:
    """1k, 10k, 100k, 1M."""
    for size, word in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens // size}{word}"
    return str(tokens)


class Growing:
    """One conversation that grows through the real path, and its twin."""

    def __init__(self, family: Family, door: DoorProcess, caller: Caller, text: "Text") -> None:
        self._family, self._door, self._text = family, door, text
        self._caller, self._talk, self._twin = caller, Talk("one"), Twin(family)
        self._empty = door.resident_bytes()
        self.tokens = self.turns = 0
        self.bodies: list[list[bytes]] = []
        """Those that were measured, by length."""

    def call(self, result: Callable[[int], str]) -> tuple[float, Phases]:
        """One call, then its tool's result, made from the prompt's tokens; its CPU seconds."""
        body = self._talk.body()
        before = self._door.cpu_s()
        reply = self._caller.call(body)
        used = self._door.cpu_s() - before
        phases = self._twin.step(body, reply)
        self.tokens = msgspec.json.decode(reply)["usage"]["prompt_tokens"]
        self._talk.add(reply, result(self.tokens))
        self.turns += 2
        return used, phases

    def reach(self, length: int, tell: Callable[[str], None]) -> None:
        """Grow to that many tokens."""
        while self.tokens < length:
            tell(f"growing to {name(length)}: {self.tokens:,} tokens")
            self.call(lambda tokens: self._text.next(min(GROWTH_TOKENS, max(0, length - tokens))))
        for _ in range(WARM_CALLS):
            self.call(lambda _tokens: self._text.chars(RESULT_CHARS))

    def measure(self, nominal: str, calls: int) -> AtLength:
        """So many calls from here on."""
        self._door.stats()
        self.bodies.append([])
        used, phases = [], []
        for _ in range(calls):
            self.bodies[-1].append(self._talk.body())
            seconds, parts = self.call(lambda _tokens: self._text.chars(RESULT_CHARS))
            used.append(seconds)
            phases.append(parts)
        stats = self._door.stats()
        first = self.bodies[-1][0]
        return AtLength(
            nominal=nominal,
            history_tokens=stats.prompt_tokens // calls,
            body_bytes=len(first),
            turns=self.turns,
            cpu_ms=1e3 * sum(used) / calls,
            encoded_tokens=stats.encoded_tokens / calls,
            reencoding_ms=reencoding_ms(self._family, first),
            phases=_medians(phases),
            resident_bytes=self._door.resident_bytes() - self._empty,
        )


def measure_proxy(
    lengths: Sequence[int],
    calls: int,
    tokenizer: Path,
    folder: Path,
    tell: Callable[[str], None],
) -> tuple[ProxyResult, list[list[bytes]]]:
    """One conversation grown through all lengths; also the bodies that were measured, by length."""
    reader = Tokenizer.from_file(str(tokenizer))
    family = Qwen3Family(reader)
    settings = DoorSettings(tokenizer=str(tokenizer), folder=str(folder))
    with DoorProcess(settings) as door, contextlib.closing(door.caller()) as caller:
        growing = Growing(family, door, caller, Text(family, max(lengths)))
        found = []
        for length in sorted(lengths):
            growing.reach(length, tell)
            tell(f"measuring at {name(length)}")
            found.append(growing.measure(name(length), calls))
    result = ProxyResult(
        lengths=found,
        calls_each=calls,
        tokenizer=str(tokenizer),
        vocabulary=reader.get_vocab_size(),
    )
    return result, growing.bodies


def with_peer(result: ProxyResult, peer: str, cpu_ms: Sequence[float]) -> ProxyResult:
    """The result with a peer's figures, one for each length."""
    lengths = [
        msgspec.structs.replace(one, peer_cpu_ms=ms)
        for one, ms in zip(result.lengths, cpu_ms, strict=True)
    ]
    return msgspec.structs.replace(result, lengths=lengths, peer=peer)


def reencoding_ms(family: Family, body: bytes) -> float:
    """What a proxy that remembers nothing has to do at least."""
    return 1e3 * min(_reencoding_s(family, body) for _ in range(2))


def _reencoding_s(family: Family, body: bytes) -> float:
    gc.collect()
    start = time.process_time()
    asked = ChatDialect().parse(msgspec.json.decode(body))
    family.encode(render_conversation(family, asked.conversation))
    return time.process_time() - start


class Text:
    """Tool results: a corpus, cut where the tokens that are wanted end."""

    def __init__(self, family: Family, tokens: int) -> None:
        self._corpus = corpus(min(5 * tokens, 2_000_000) + RESULT_CHARS)
        sample = self._corpus[:100_000]
        self._chars_per_token = len(sample) / len(family.encode(sample))
        self._at = 0

    def next(self, tokens: int) -> str:
        """About so many."""
        return self.chars(int(tokens * self._chars_per_token))

    def chars(self, count: int) -> str:
        """The next ones."""
        if self._at + count > len(self._corpus):
            self._at = 0
        self._at += count
        return self._corpus[self._at - count : self._at]


class Twin:
    """The same conversation beside the server, so that a call's parts can be timed apart."""

    def __init__(self, family: Family) -> None:
        self._family, self._ids = family, CountingIds()
        self._dialect = ChatDialect()
        self._reader, self._history = Reader(), History(family)
        self._answer = [*family.encode(ANSWER), family.stop_ids[0]]

    def step(self, body: bytes, reply: bytes) -> Phases:
        """One call, answered with that reply; its parts in CPU milliseconds."""
        message = _told(reply)
        times = [time.thread_time()]
        found = self._reader.lines.find(body)
        times.append(time.thread_time())
        reading = self._reader.read(self._dialect, body, {}, found)
        times.append(time.thread_time())
        plan = self._history.plan(reading.asked.conversation)
        times.append(time.thread_time())
        call_id = self._ids.new("call")
        node = self._history.keep(plan, call_id, self._answer)
        self._history.keep_reply(node, call_id, message, stopped=True, faithful=True)
        times.append(time.thread_time())
        parts = [1e3 * (after - before) for before, after in itertools.pairwise(times)]
        return Phases(find=parts[0], read=parts[1], plan=parts[2], keep=parts[3])


def _told(reply: bytes) -> Message:
    message = msgspec.json.decode(reply)["choices"][0]["message"]
    calls = tuple(
        ToolCall(
            call["id"],
            call["function"]["name"],
            msgspec.json.decode(call["function"]["arguments"]),
        )
        for call in message.get("tool_calls") or []
    )
    return Message("assistant", message["content"] or "", calls=calls)


def _medians(steps: Sequence[Phases]) -> Phases:
    return Phases(
        **{
            field: statistics.median(getattr(step, field) for step in steps)
            for field in Phases.__struct_fields__
        }
    )
