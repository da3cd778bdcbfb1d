"""A recording from its first call to ctrl-C.

Invariant: when this returns, whatever was answered is in the run folder, and what was not can be gone
on with by the same command; nothing is lost when it is killed instead.
"""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from rich.console import Console

from opengyre.app.claim import recorded_config
from opengyre.app.garbage import short_collections
from opengyre.app.paths import RunPaths
from opengyre.app.policy import read_tokenizer
from opengyre.app.recording.directions import directions
from opengyre.app.recording.doors import FrontDoor, key_of, known_key, recording_key
from opengyre.app.recording.ending import Endings
from opengyre.app.recording.options import RecordingOptions, claim_recording
from opengyre.app.recording.recognise import classify_any
from opengyre.app.recording.show import Board, Figures, Totals, closing_words
from opengyre.app.recording.source import Source, open_source
from opengyre.app.wall import WallClock, today
from opengyre.core.protocols import Clock, IdSource
from opengyre.engine.upstream.versions import VersionBook
from opengyre.proxy.app import build_app
from opengyre.proxy.executions import Executions
from opengyre.proxy.families.base import Family
from opengyre.proxy.families.make import AUTO, detect_family, make_family
from opengyre.proxy.restore import reopen
from opengyre.proxy.serving import Serving, serve
from opengyre.proxy.session import Limits
from opengyre.proxy.voices import Voices
from opengyre.store.run import RunStore

BEAT_S = 1.0
"""Between looks at what changed."""
MAX_BODY_BYTES = 64 << 20
VERSIONS = "versions"
"""Name of the weight versions' labels in the run's store."""
ANY = "ANY-NAME"
"""In printed addresses, where each program run takes a name of its own."""


@dataclass(frozen=True)
class Place:
    """Where a recording is made, and what its words go to."""

    paths: RunPaths
    console: Console
    ids: IdSource
    key: str | None = None
    """Given by the user; else the folder's own, or a new one."""
    opened: Callable[[Serving, str], None] = lambda _serving, _key: None
    """Told once that calls are served: a test starts here."""


async def record(options: RecordingOptions, place: Place) -> Figures:
    """Serve until cancelled; returns what was counted. Raises UserError before it serves."""
    paths = place.paths
    tokenizer = read_tokenizer(options.model)
    family = make_family(_family(options), tokenizer, options.tool_style)
    with RunStore(paths.store) as store:
        await claim_recording(options, store, paths.folder)
        clock = WallClock(store.last_second())
        await store.begin_life()
        versions = VersionBook(json.loads(store.meta(VERSIONS) or "null"))
        async with open_source(options, family, versions, clock, place.ids) as source:
            desk = Desk(options, place, store, clock, family, source)
            async with short_collections(clock, lambda: desk.idle):
                return await desk.serve()


def _family(options: RecordingOptions) -> str:
    return detect_family(options.model) if options.family == AUTO else options.family


class Desk:
    """The open recording."""

    def __init__(
        self,
        options: RecordingOptions,
        place: Place,
        store: RunStore,
        clock: Clock,
        family: Family,
        source: Source,
    ) -> None:
        self._options, self._place, self._store = options, place, store
        self._clock, self._family, self._source = clock, family, source
        self._executions: Executions = reopen(family, store.journal)
        former = known_key(place.paths.folder)
        self._key = recording_key(place.paths.folder, place.key)
        self._key_changed = former not in {None, self._key}
        self._executions.change_keys(self._key_for)
        config = recorded_config(store)
        assert config is not None, "claimed before"
        self._endings = Endings(self._executions, store, config, clock, options.harness)
        self._labels: dict[str, int] | None = None
        """As they were saved last."""

    @property
    def idle(self) -> bool:
        """No call is in the making."""
        return self._executions.idle

    async def serve(self) -> Figures:
        """Until cancelled."""
        await self._endings.complete()
        for name in self._options.executions:
            if name not in self._executions and name not in self._endings:
                self._open(name)
        serving = await self._listen()
        self._greet(serving)
        self._place.opened(serving, self._key)
        try:
            with Board(self._place.console, self._clock, self.figures()) as board:
                await self._until_cancelled(board)
        finally:
            unfinished = sum(len(door.live) for door in self._executions.doors)
            await self._endings.settled()
            await self._executions.suspend()
            await serving.stop()
            await self._save_labels()
            self._write_summary()
            closing_words(
                self._place.console, self.figures(), str(self._place.paths.folder), unfinished
            )
        return self.figures()

    async def _until_cancelled(self, board: Board) -> None:
        try:
            while True:
                await self._clock.sleep(BEAT_S)
                await self._save_labels()
                ended = self._endings.totals.copy()
                board.beat(await asyncio.to_thread(self.figures, ended))
        except asyncio.CancelledError:
            return  # ctrl-C is how a recording ends

    async def _listen(self) -> Serving:
        options = self._options
        limits = Limits(
            context_tokens=self._source.context_tokens,
            max_new_tokens=min(options.max_new_tokens, self._source.context_tokens - 1),
            max_body_bytes=MAX_BODY_BYTES,
        )
        app = build_app(
            self._executions,
            self._source.generator,
            self._store,
            self._family,
            limits,
            self._clock,
            self._place.ids,
            classify=classify_any,
        )
        voices = Voices(self._place.ids)
        admit = None if options.executions else self._open
        front = FrontDoor(app, self._executions, self._endings, voices, self._key_for, admit)
        return await serve(front, socket_path=options.socket, port=options.port)

    def _key_for(self, execution_id: str) -> str:
        return key_of(self._key, execution_id, own=bool(self._options.executions))

    def _open(self, execution_id: str) -> None:
        seed = random.Random(f"{self._options.seed}/{execution_id}").getrandbits(63)
        self._executions.open(
            execution_id,
            self._key_for(execution_id),
            harness=self._options.harness,
            seed=seed,
            temperature=self._options.temperature,
        )

    def figures(self, ended: Totals | None = None) -> Figures:
        """As they are now; ended: a copy of the totals, for a thread beside the event loop."""
        source = self._source
        return Figures(
            title=f"recording {source.title}",
            doors=[door.report() for door in self._executions.doors],
            ended=self._endings.totals if ended is None else ended,
            upstream=source.counts,
            labels=source.versions.labels,
            trouble=source.trouble(),
        )

    async def _save_labels(self) -> None:
        labels = self._source.versions.labels
        if labels != self._labels:
            await self._store.put_meta(VERSIONS, json.dumps(labels))
            self._labels = dict(labels)

    def _write_summary(self) -> None:
        figures = self.figures()
        summary = {
            "recording": self._source.title,
            "harness": self._options.harness,
            "seed": self._options.seed,
            "temperature": self._options.temperature,
            "stopped": today(),
            **figures.totals(),
            "forks": figures.forks(),
            "server": msgspec.to_builtins(figures.upstream),
            "weight_versions": figures.labels,
        }
        self._place.paths.summary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")

    def _greet(self, serving: Serving) -> None:
        say = self._say
        say(f"recording {self._source.title}")
        for note in self._source.notes:
            say(f"note: {note}")
        if self._key_changed:
            say("note: the key is another one than before; programs with the old one are shut out")
        say(f"run folder {self._place.paths.folder}; context {self._source.context_tokens} tokens")
        if self._options.socket is not None:
            say(f"unix socket {self._options.socket}")
        root = f"http://127.0.0.1:{serving.port}" if serving.port else "http://localhost"
        names = self._options.executions
        if not names:
            say(f"base URL {root}/run/{ANY} (a name for each run of a program), key {self._key}")
        for name in names:
            say(f"base URL {root}/run/{name}, key {self._key_for(name)}")
        first = names[0] if names else ANY
        url, key = f"{root}/run/{first}", self._key_for(first)
        for program, line in directions(url, key, self._options.harness):
            say(f"{program}:\n  {line}")
        say("ctrl-C stops; the same command goes on")

    def _say(self, line: str) -> None:
        self._place.console.print(line, highlight=False, markup=False, soft_wrap=True)
