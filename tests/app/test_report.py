"""The page is drawn from whatever a run has so far; its axes agree with one another."""

import asyncio
from pathlib import Path

from tests.app.test_progress import a_step

from opengyre.app.report import figures
from opengyre.app.report.lanes import lanes
from opengyre.app.report.page import write_report
from opengyre.store.rows import EventRow
from opengyre.store.run import RunStore


def test_a_run_that_has_nothing_yet_is_drawn(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run.sqlite"):
        pass
    page = write_report(tmp_path).read_text()
    assert "The run has not ended yet." in page
    assert "<script src" not in page, "the page needs no network"


def test_lanes_and_waterlevel_share_their_seconds() -> None:
    role = EventRow(at=3.0, kind="role", fields={"cell": 0.0, "role": "training"})
    level = EventRow(at=2.0, kind="waterlevel", fields={"waterlevel": 4.0, "capacity": 2.0})
    upper = figures.cell_lanes(lanes([role], 10.0), [])
    lower = figures.waterlevel([level], 10.0)
    assert upper.layout.xaxis.range == lower.layout.xaxis.range == (0, 10.0)


def test_the_lanes_last_until_the_last_evaluation(tmp_path: Path) -> None:
    events = [
        EventRow(at=1.0, kind="role", fields={"cell": 0.0, "role": "rollout"}),
        EventRow(at=77.0, kind="evaluation", fields={"name": "after", "step": 1.0, "rate": 0.5}),
    ]
    with RunStore(tmp_path / "run.sqlite") as store:
        for event in events:
            asyncio.run(store.put_event(event))
    assert '"range":[0,77.0]' in write_report(tmp_path).read_text()


def test_steps_are_counted_whole() -> None:
    steps = [a_step(number, float(number)) for number in range(1, 41)]
    for shown in (1, 2, 40):
        tick = figures.learning(steps[:shown], []).layout.xaxis.dtick
        assert tick == int(tick) >= 1
