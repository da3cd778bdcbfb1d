"""The terminal's picture: each part on lines of its own, nothing said that means nothing yet."""

import io

from rich.console import Console

from opengyre.app.history import Figures
from opengyre.app.progress import Progress
from opengyre.core.fakes import FakeClock
from opengyre.core.reasons import CellRole
from opengyre.store.rows import StepRow

WIDTH = 140


def a_step(step: int, at: float) -> StepRow:
    metrics = {"staleness_versions_mean": 0.0, "clip_share": 0.25, "cells": 2.0}
    return StepRow(
        step=step,
        version=step - 1,
        at=at,
        executions=4,
        groups=[],
        reward_mean=0.5,
        pass_rate=0.5,
        metrics=metrics,
    )


def drawn(figures: Figures) -> list[str]:
    console = Console(file=io.StringIO(), width=WIDTH)
    progress = Progress(console, FakeClock(), total_steps=4)
    progress.watch(figures)
    with console.capture() as captured:
        console.print(progress._draw())
    return captured.get().splitlines()


def test_the_bar_and_the_table_have_lines_of_their_own() -> None:
    roles = {0: CellRole.TRAINING, 1: CellRole.ROLLOUT}
    steps = [a_step(1, 10.0), a_step(2, 20.0)]
    figures = Figures(roles=roles, phase="training", phase_total=16, phase_done=8, steps=steps)
    cells, facts, bar, header, first, second = drawn(figures)
    assert "0*training" in cells
    assert "8 of 16 executions" in facts
    assert set(bar.strip()) <= set("━╸╺ ")
    assert header.split()[:2] == ["step", "reward"]
    assert first.split()[0] == "1/4"
    assert second.split()[0] == "2/4"


def test_an_evaluation_has_no_waterlevel_and_no_pace() -> None:
    figures = Figures(phase="after", phase_total=8, steps=[a_step(1, 1.0), a_step(2, 2.0)])
    facts = drawn(figures)[1]
    assert "waterlevel" not in facts
    assert "left" not in facts


def test_a_start_counts_nothing() -> None:
    assert drawn(Figures())[1] == "starting · 0:00 so far"


def test_a_pipe_gets_one_line_a_step_however_narrow() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, width=40), FakeClock(), total_steps=4)
    progress.watch(Figures(phase="training", phase_total=4, steps=[a_step(1, 1.0)]))
    assert [line[:4] for line in out.getvalue().splitlines()] == ["0:00", "0:00"]
