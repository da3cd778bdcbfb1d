"""Candidates keep every rule that elastic keeps; their comparison is the same again from a seed."""

import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.scheduler.explore import Faults, explore
from tests.scheduler.strategies import plans
from tests.scheduler.world import LOST, World
from typer.testing import CliRunner

from opengyre.app.cli import app
from opengyre.app.simulate import commands, policies
from opengyre.app.simulate.candidates import (
    Even,
    IdleReturn,
    Patient,
    ReadyFirst,
    Settled,
    StayOn,
)
from opengyre.app.simulate.policies import Gain, compare, draw_case, policies_table
from opengyre.config.run import PolicyName
from opengyre.scheduler.base import CORE, Policy, SchedulePlan
from opengyre.scheduler.cells import Cell
from opengyre.scheduler.forecast import EarlyReturn, Forecast
from opengyre.scheduler.state import State
from opengyre.sim.world import simulate


class Hermit(EarlyReturn):
    """No satellite ever joins."""

    def wants(self, state: State, cell: Cell) -> bool:
        return cell.index == CORE


class Moody(EarlyReturn):
    """Satellites join by chance: whatever an estimate may say."""

    def __init__(self) -> None:
        self._draw = random.Random(3)

    def wants(self, state: State, cell: Cell) -> bool:
        return cell.index == CORE or self._draw.random() < 0.3


class Homely(World):
    """Judges by the rules of elastic, but satellites may go home at any time."""

    def _judge_return(self, cell: int) -> None:
        if cell == CORE:
            super()._judge_return(cell)


class Staying(World):
    """Judges by the rules of elastic, but satellites may train on in the next burst."""

    def _check_training(self) -> None:
        """Told in whichever burst."""

    def _judge_return(self, cell: int) -> None:
        if cell == CORE:
            super()._judge_return(cell)


@dataclass(frozen=True)
class Candidate:
    """A policy and who judges it."""

    make: Callable[[], Policy]
    rules: PolicyName = "forecast"
    judge: type[World] = World

    def world(self, plan: SchedulePlan) -> World:
        return self.judge(plan, self.rules, by=self.make())


CANDIDATES: dict[str, Candidate] = {
    "early": Candidate(EarlyReturn),
    "patient": Candidate(partial(Patient, 0.5)),
    "ready": Candidate(ReadyFirst, "elastic"),
    "stay": Candidate(StayOn, "elastic", Staying),
    "idle": Candidate(IdleReturn, "elastic", Homely),
    "forecast": Candidate(Forecast),
    "settled": Candidate(Settled),
    "even": Candidate(Even, "elastic"),
    "hermit": Candidate(Hermit),
}
SMALL = SchedulePlan(
    cells=(1, 1, 1),
    group_size=1,
    groups_per_step=2,
    steps_per_burst=2,
    staleness_steps=1,
    total_steps=2,
)


@pytest.mark.parametrize("candidate", CANDIDATES.values(), ids=CANDIDATES)
def test_a_candidate_keeps_the_rules_of_elastic_in_every_state(candidate: Candidate) -> None:
    graph = explore(candidate.world(SMALL), Faults(losses=1))
    assert graph.every_run_ends()
    assert len(graph.numbers) > 400


@given(
    plan=plans(),
    candidate=st.sampled_from([*CANDIDATES.values(), Candidate(Moody)]),
    moves=st.integers(0, 120),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60, deadline=None)
def test_a_candidate_keeps_them_whatever_happens(
    plan: SchedulePlan, candidate: Candidate, moves: int, seed: int
) -> None:
    rng = random.Random(seed)
    world = candidate.world(plan)
    for _ in range(moves):
        live = [cell for cell, role in enumerate(world.roles) if role is not LOST]
        if world.finished:
            break
        if live and rng.random() < 0.05:
            world.lose(rng.choice(live))
        elif LOST in world.roles and rng.random() < 0.2:
            world.give_back(world.roles.index(LOST))
        elif actions := world.actions():
            rng.choice(actions)()
    world.drain(rng.randrange)
    assert len(world.consumed) == plan.total_steps * plan.groups_per_step


def test_the_settings_have_the_share_of_training_that_they_say() -> None:
    case = draw_case(1, 0)
    outcome = simulate(case.seeded("fresh", 0))
    assert case == draw_case(1, 0)
    assert outcome.tally.executions <= 1000
    assert case.seeded("fresh", 0).seed != case.seeded("trial", 0).seed


def test_the_comparison_is_the_same_again() -> None:
    names = ("forecast: learned time, even cells", "micro-step: a whole group")
    one, again = (list(compare([draw_case(n, 0) for n in range(2)], names)) for _ in range(2))
    assert one == again
    assert one[1].mean < 0


def test_no_figure_of_the_table_is_cut_on_a_narrow_terminal() -> None:
    gain = Gain(
        "a contender with a name that is a good deal too long", (-0.123, 1.5), (0.1, 0.5), -1.25
    )
    console = Console(width=72, file=io.StringIO())
    console.print(policies_table([gain], [gain]))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "…" not in shown
    for figure in ("-12.3%", "+150.0%", "-1.25"):
        assert figure in shown


def test_the_command_writes_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "FITTED", 1)
    monkeypatch.setattr(policies, "SEEDS", 1)
    name = "satellites home before the publication"
    monkeypatch.setattr(policies, "CONTENDERS", {name: policies.CONTENDERS[name]})
    file = tmp_path / "rows.json"
    result = CliRunner().invoke(app, ["simulate", "policies", "--sets", "1", "--json", str(file)])
    assert result.exit_code == 0, result.output
    rows = json.loads(file.read_text())
    assert [row["contender"] for row in rows] == [name]
    assert rows[0]["older_steps"] == 0.0, "the plan is the same, and all groups were consumed"
    assert rows[0]["reaches_bar"] is (rows[0]["mean_gain"] >= policies.WORTH)
    assert len(rows[0]["gains"]) == len(rows[0]["gains_fitted"]) == 1
