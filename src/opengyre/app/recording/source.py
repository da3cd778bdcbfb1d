"""Where a recording's tokens come from: a server elsewhere, or a model in this process.

Invariant: what is opened was checked to be the policy whose folder was named.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from opengyre.app.recording.options import RecordingOptions, model_rows
from opengyre.core.errors import UserError
from opengyre.core.protocols import Clock, Generator, IdSource
from opengyre.engine.upstream.base import Facts, ServerApi, UpstreamCounts
from opengyre.engine.upstream.client import Patience, Upstream
from opengyre.engine.upstream.find import find_server
from opengyre.engine.upstream.probe import check_server
from opengyre.engine.upstream.versions import VersionBook
from opengyre.engine.upstream.wire import Deadlines, Wire
from opengyre.proxy.families.base import Family

SHORTEST_CONTEXT = 64
"""Tokens: less holds no request of any agent program."""
OWN_CONTEXT = 32768
"""Tokens of context of a model that this process serves, where the model has more."""


@dataclass(frozen=True)
class Source:
    """An open source of tokens."""

    generator: Generator
    title: str
    """Of the terminal's head line."""
    context_tokens: int
    counts: UpstreamCounts | None
    """None for a model in this process."""
    versions: VersionBook
    trouble: Callable[[], str]
    """Why it does not answer at the moment; empty while it does."""
    notes: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def open_source(
    options: RecordingOptions, family: Family, versions: VersionBook, clock: Clock, ids: IdSource
) -> AsyncIterator[Source]:
    """Raises UserError when the server is not there, or is another's."""
    if options.upstream is None:
        with _own_model(options, versions) as source:
            yield source
        return
    wire = Wire(options.upstream, Deadlines(silence_s=options.silence_s), options.upstream_key)
    try:
        api, facts = await find_server(wire, versions)
        try:
            yield await _checked(
                options, family, versions, _Reached(api, facts, wire.url), clock, ids
            )
        finally:
            await api.close()
    finally:
        await wire.close()


@dataclass(frozen=True)
class _Reached:
    api: ServerApi
    facts: Facts
    url: str


async def _checked(
    options: RecordingOptions,
    family: Family,
    versions: VersionBook,
    reached: _Reached,
    clock: Clock,
    ids: IdSource,
) -> Source:
    api, facts, rows = reached.api, reached.facts, model_rows(options.model)
    notes = await check_server(
        api,
        facts,
        lambda text: list(family.encode(text)),
        model=str(options.model),
        rows=rows,
        temperature=options.temperature,
    )
    patience = Patience(total_s=options.patience_s)
    upstream = Upstream(api, facts, clock, ids, patience=patience, rows=rows)
    return Source(
        generator=upstream,
        title=f"{facts.software} {facts.release} at {reached.url} with {facts.model}",
        context_tokens=_context(options, facts.context_tokens),
        counts=upstream.counts,
        versions=versions,
        trouble=lambda: upstream.trouble,
        notes=notes,
    )


@contextlib.contextmanager
def _own_model(options: RecordingOptions, versions: VersionBook) -> Iterator[Source]:
    from opengyre.engine.embedded import EmbeddedEngine, EngineLimits
    from opengyre.engine.threaded import ThreadedEngine
    from opengyre.model.folder import load_model

    model = load_model(options.model)
    context = _context(options, min(model.shape.max_position_embeddings, OWN_CONTEXT))
    limits = EngineLimits(kv_tokens=max(2 * context, OWN_CONTEXT), max_context=context)
    with ThreadedEngine(EmbeddedEngine(model, 0, limits)) as engine:
        yield Source(
            generator=engine,
            title=f"{options.model} in this process",
            context_tokens=context,
            counts=None,
            versions=versions,
            trouble=lambda: "",
        )


def _context(options: RecordingOptions, theirs: int | None) -> int:
    """The smaller one. Raises UserError."""
    wanted = options.context_tokens or theirs
    if wanted is None:
        raise UserError(
            "a length of context", "a server that does not tell its own", "add --context-tokens"
        )
    if theirs is not None and wanted > theirs:
        raise UserError(
            f"a context of {wanted} tokens",
            f"a server with {theirs}",
            "set --context-tokens to at most that, or leave it out",
        )
    if wanted < SHORTEST_CONTEXT:
        raise UserError(
            f"a context of {SHORTEST_CONTEXT} tokens or more", str(wanted), "raise --context-tokens"
        )
    return wanted
