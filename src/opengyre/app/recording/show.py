"""The terminal while something is recorded, and the words at its end."""

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from opengyre.core.protocols import Clock
from opengyre.engine.upstream.base import UpstreamCounts
from opengyre.proxy.executions import DoorReport

SHOWN = 12
"""Executions in the table: the newest, beside the rest on a small terminal."""
REFRESH_PER_SECOND = 2
"""Often enough to look alive, rarely enough to cost nothing."""
MINUTE = 60


SUMMED = (
    "calls",
    "complete_replies",
    "aborted_calls",
    "failed_calls",
    "refused_calls",
    "repeated_calls",
    "malformed_tool_calls",
    "prompt_tokens",
    "reused_tokens",
    "sampled_tokens",
)
"""Of a door's report."""


@dataclass
class Totals:
    """Sums over executions."""

    executions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    forks: Counter[str] = field(default_factory=Counter)

    def add(self, report: DoorReport) -> None:
        """One more."""
        self.executions += 1
        for name in SUMMED:
            self.counts[name] += getattr(report, name)
        self.counts["continued_calls"] += report.moves_recomputed
        self.forks.update(report.forks)

    def copy(self) -> "Totals":
        """As they are now."""
        return Totals(self.executions, self.counts.copy(), self.forks.copy())


@dataclass
class Figures:
    """Everything that is counted."""

    title: str = ""
    doors: list[DoorReport] = field(default_factory=list)
    """Open executions, oldest first."""
    ended: Totals = field(default_factory=Totals)
    upstream: UpstreamCounts | None = None
    labels: dict[str, int] = field(default_factory=dict)
    """Weight versions by the server's own names."""
    trouble: str = ""

    def __post_init__(self) -> None:
        self._all = self.ended.copy()
        for report in self.doors:
            self._all.add(report)

    def totals(self) -> dict[str, int]:
        """Over all executions."""
        counts = {name: self._all.counts[name] for name in (*SUMMED, "continued_calls")}
        executions = {
            "executions": self._all.executions,
            "executions_ended": self.ended.executions,
        }
        return executions | counts

    def forks(self) -> dict[str, int]:
        """By reason, over all executions."""
        return dict(self._all.forks)


class Board:
    """Draws until closed; without a terminal it prints a line a minute, when something changed."""

    def __init__(self, console: Console, clock: Clock, first: Figures) -> None:
        self._console, self._clock, self._figures = console, clock, first
        self._told_at, self._told = 0.0, ""
        self._trouble = ""
        self._live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> "Board":
        self._told_at = self._clock.now()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def beat(self, figures: Figures) -> None:
        """The figures are these now."""
        self._figures = figures
        if figures.trouble != self._trouble:
            self._trouble = figures.trouble
            self._print(f"server: {figures.trouble or 'answers again'}")
        line = _line(figures)
        due = self._clock.now() - self._told_at >= MINUTE and line != self._told
        if due and not self._console.is_terminal:
            self._print(line)
            self._told, self._told_at = line, self._clock.now()

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _draw(self) -> RenderableType:
        figures = self._figures
        parts: list[RenderableType] = [Text(figures.title, style="bold"), Text(_line(figures))]
        if figures.upstream is not None:
            parts.append(Text(_server(figures.upstream, figures.labels), style="dim"))
        if figures.trouble:
            parts.append(Text(figures.trouble, style="red"))
        if figures.doors:
            parts.append(_table(figures.doors[-SHOWN:]))
        return Group(*parts)


def _line(figures: Figures) -> str:
    t = figures.totals()
    return (
        f"{t['executions']} executions ({t['executions_ended']} ended) · {t['calls']} calls, "
        f"{t['aborted_calls']} aborted, {t['failed_calls']} failed, {t['refused_calls']} refused, "
        f"{t['repeated_calls']} repeated, {t['continued_calls']} continued · "
        f"{t['sampled_tokens']:,} sampled of {t['prompt_tokens'] + t['sampled_tokens']:,} tokens, "
        f"{t['reused_tokens']:,} reused · {t['malformed_tool_calls']} malformed tool calls"
    )


def _server(counts: UpstreamCounts, labels: dict[str, int]) -> str:
    return (
        f"server: {counts.in_flight} in flight, {counts.answered} of {counts.requests} answered, "
        f"{counts.cancelled} cancelled, {counts.failed} failed · {counts.losses} losses, "
        f"{counts.continued} continued · {counts.tokens:,} tokens back for {counts.prompt_tokens:,} "
        f"sent, {counts.cached_tokens:,} of them cached · {len(labels)} weight versions"
    )


def _table(doors: list[DoorReport]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in (
        "execution",
        "calls",
        "sampled",
        "prompt",
        "reused",
        "forks",
        "aborted",
        "failed",
    ):
        table.add_column(column, justify="left" if column == "execution" else "right")
    for door in doors:
        table.add_row(
            door.execution_id,
            str(door.calls),
            f"{door.sampled_tokens:,}",
            f"{door.prompt_tokens:,}",
            f"{door.reused_tokens:,}",
            str(sum(door.forks.values())),
            str(door.aborted_calls),
            str(door.failed_calls),
        )
    return table


def closing_words(console: Console, figures: Figures, run: str, unfinished: int) -> None:
    """What was recorded, and what can be done with it."""
    words = [_line(figures)]
    if figures.upstream is not None:
        words.append(_server(figures.upstream, figures.labels))
    if unfinished:
        words.append(
            f"{unfinished} unfinished calls are kept with their tokens; the same command goes on"
        )
    words += [
        f"recorded in {run}; look at it with:",
        f"  opengyre tree {run} list",
        f"  opengyre report {run}",
        f"  opengyre export {run} {run}-data",
    ]
    for line in words:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
