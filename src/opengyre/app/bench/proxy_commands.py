"""What `opengyre bench proxy` does: measure, print, and write JSON if asked."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from opengyre.app.bench.crowd import measure_crowd
from opengyre.app.bench.peer import measure_peer
from opengyre.app.bench.proxy import measure_proxy, with_peer
from opengyre.app.bench.proxy_show import (
    crowd_json,
    crowd_words,
    proxy_json,
    proxy_table,
    proxy_words,
)
from opengyre.app.bench.vocabulary import write_tokenizer
from opengyre.app.results import write_json
from opengyre.app.wall import WallClock
from opengyre.core.errors import UserError


@dataclass(frozen=True, kw_only=True)
class ProxyOptions:
    """What was asked for."""

    lengths: list[int]
    calls: int
    executions: int | None
    tokens: int
    tokenizer: Path | None
    peer: str | None
    peer_path: str
    json: Path | None


def run_proxy(options: ProxyOptions) -> None:
    """One conversation as it grows, or many at once."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="opengyre-bench-") as made:
        folder = Path(made)
        tokenizer = options.tokenizer or write_tokenizer(folder / "tokenizer.json")
        if not tokenizer.is_file():
            raise UserError(f"a tokenizer.json at {tokenizer}", "no such file", "name another one")
        with _telling(console) as tell:
            if options.executions is None:
                figures = _grow(options, tokenizer, folder, tell, console)
            else:
                figures = _crowd(options, options.executions, tokenizer, folder, tell, console)
    if options.json is not None:
        write_json(figures, options.json)


def _grow(
    options: ProxyOptions,
    tokenizer: Path,
    folder: Path,
    tell: Callable[[str], None],
    console: Console,
) -> dict[str, object]:
    result, bodies = measure_proxy(options.lengths, options.calls, tokenizer, folder, tell)
    if options.peer is not None:
        tell("measuring the peer")
        times = measure_peer(options.peer, bodies, options.peer_path, WallClock())
        result = with_peer(result, options.peer, times)
    console.print(proxy_table(result))
    for words in proxy_words(result):
        console.print(words, highlight=False, soft_wrap=True)
    return proxy_json(result)


def _crowd(
    options: ProxyOptions,
    executions: int,
    tokenizer: Path,
    folder: Path,
    tell: Callable[[str], None],
    console: Console,
) -> dict[str, object]:
    clock = WallClock()
    result = measure_crowd(
        executions, options.calls, options.tokens, tokenizer, folder, clock, tell
    )
    for words in crowd_words(result):
        console.print(words, highlight=False, soft_wrap=True)
    return crowd_json(result)


@contextlib.contextmanager
def _telling(console: Console) -> Iterator[Callable[[str], None]]:
    with console.status("starting") as status:
        yield status.update
