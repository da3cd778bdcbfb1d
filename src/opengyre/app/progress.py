"""The terminal while a run works: cells, waterlevel, executions, steps, reward, time left."""

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from opengyre.app.history import Figures
from opengyre.core.protocols import Clock
from opengyre.core.reasons import CellRole
from opengyre.store.rows import StepRow

COLOURS = {
    CellRole.ROLLOUT: "green",
    CellRole.TRAINING: "magenta",
    CellRole.SWITCHING: "yellow",
    CellRole.LOST: "red",
}
"""One colour a role, the same as in the report."""

STEPS_SHOWN = 8
"""Newest steps in the table: what fits beside the rest on a small terminal."""

BAR_WIDTH = 60
"""Columns: fits the smallest terminal that people use."""

TRAINING = "training"
"""The phase that has a waterlevel and a pace."""

REFRESH_PER_SECOND = 2
"""Often enough to look alive, rarely enough to cost nothing."""


class Progress:
    """Draws the newest figures until closed; without a terminal, one line a step and a phase."""

    def __init__(self, console: Console, clock: Clock, total_steps: int) -> None:
        self._console = console
        self._clock = clock
        self._figures = Figures()
        self._total = total_steps
        self._shown = (0, "")
        self._live = Live(
            get_renderable=self._draw,
            console=console,
            refresh_per_second=REFRESH_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> "Progress":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def watch(self, figures: Figures) -> None:
        """Take the newest figures; new steps and phases are printed as lines that stay."""
        self._figures = figures
        steps, phase = self._shown
        self._shown = (len(figures.steps), figures.phase)
        for row in figures.steps[steps:]:
            self._print(step_line(row, self._total))
        if figures.phase != phase:
            self._print(f"{figures.phase}: {figures.phase_total} executions")

    def _print(self, line: str) -> None:
        self._console.print(
            f"{_minutes(self._clock.now())} · {line}", highlight=False, soft_wrap=True
        )

    def _draw(self) -> RenderableType:
        figures = self._figures
        cells = Text("cells  ")
        for cell, role in sorted(figures.roles.items()):
            cells.append(f" {cell}{'*' if cell == 0 else ' '}{role.value} ", style=COLOURS[role])
        parts: list[RenderableType] = [cells, Text(self._facts()), _bar(figures)]
        if figures.steps:
            parts.append(_table(figures.steps[-STEPS_SHOWN:], self._total))
        return Group(*parts)

    def _facts(self) -> str:
        figures, so_far = self._figures, f"{_minutes(self._clock.now())} so far"
        if not figures.phase_total:
            return f"{figures.phase} · {so_far}"
        facts = (
            f"{figures.phase}: {figures.phase_done} of {figures.phase_total} executions, "
            f"{figures.excluded} excluded"
        )
        if figures.phase != TRAINING:
            return f"{facts} · {so_far}"
        return (
            f"{facts} · waterlevel {figures.waterlevel}, room for {figures.capacity} · "
            f"{figures.role_switches} switches to training · {so_far}{self._left()}"
        )

    def _left(self) -> str:
        now, steps = self._clock.now(), self._figures.steps
        if len(steps) < 2:
            return ""
        pace = (steps[-1].at - steps[0].at) / (len(steps) - 1)
        left = max(pace * (self._total - steps[-1].step) - (now - steps[-1].at), 0.0)
        return f", about {_minutes(left)} of training left"


def _bar(figures: Figures) -> Table:
    """A bar on a line of its own: by itself it leaves the line open."""
    share = figures.phase_done / figures.phase_total if figures.phase_total else 0.0
    line = Table.grid()
    line.add_row(ProgressBar(total=1.0, completed=min(share, 1.0), width=BAR_WIDTH))
    return line


def step_line(row: StepRow, total: int) -> str:
    """One step in one line."""
    return (
        f"step {row.step:>3} of {total} · reward {row.reward_mean:.3f} · pass {row.pass_rate:.2f} · "
        f"{row.executions} executions in the loss · version {row.version} · "
        f"clip {row.metrics['clip_share']:.2f}"
    )


def _table(rows: list[StepRow], total: int) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("step", "reward", "pass", "in loss", "version", "stale", "clip", "cells"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row.step}/{total}",
            f"{row.reward_mean:.3f}",
            f"{row.pass_rate:.2f}",
            str(row.executions),
            str(row.version),
            f"{row.metrics['staleness_versions_mean']:.1f}",
            f"{row.metrics['clip_share']:.2f}",
            f"{row.metrics['cells']:.0f}",
        )
    return table


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
