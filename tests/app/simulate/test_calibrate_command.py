"""Whatever stops a calibration, the file holds what it had, and the same command goes on from there."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from opengyre.app.cli import app
from opengyre.app.simulate.ensemble import (
    Ensemble,
    bundled_ensemble,
    load_ensemble,
    save_ensemble,
)
from opengyre.app.simulate.search import begin
from opengyre.app.simulate.show import spread_table
from opengyre.core.errors import UserError

CHEAP = ("--seed", "15603", "--jobs", "1")
"""Its first sets have two cells and little to do."""


def calibrate(out: Path, *words: str) -> str:
    command = ["simulate", "calibrate", "--out", str(out), *words]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_two_short_calls_end_where_one_longer_one_does(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "new" / "other.json"
    calibrate(one, *CHEAP, "--candidates", "1")
    said = calibrate(one, *CHEAP, "--candidates", "1")
    calibrate(other, *CHEAP, "--candidates", "2")
    assert one.read_bytes() == other.read_bytes()
    assert load_ensemble(one).candidates == 2
    assert "goes on" in said


def test_ctrl_c_keeps_what_was_tried(tmp_path: Path) -> None:
    out = tmp_path / "sets.json"
    calibrate(out, *CHEAP, "--candidates", "1")
    command = [sys.executable, "-m", "opengyre.app.cli", "simulate", "calibrate", *CHEAP]
    with subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "ctrl-C" in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate()
    assert run.returncode == 128 + signal.SIGINT
    assert "goes on from" in said
    assert load_ensemble(out).candidates >= 1


def test_the_file_of_another_search_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "sets.json"
    save_ensemble(begin(7), out)
    before = out.read_bytes()
    with pytest.raises(UserError, match="seed 7"):
        calibrate(out, "--candidates", "1")
    save_ensemble(Ensemble(seed=0, candidates=9, accepted=()), out)
    with pytest.raises(UserError, match="other ranges"):
        calibrate(out, "--candidates", "1")
    out.write_bytes(before[:-40])
    with pytest.raises(UserError, match="calibrate"):
        calibrate(out, "--candidates", "1")


def test_sets_to_start_from_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="from nothing"):
        calibrate(tmp_path / "sets.json", "--ensemble", "other.json")


def test_a_finished_search_has_nothing_to_do_and_says_what_it_found(tmp_path: Path) -> None:
    out = tmp_path / "sets.json"
    finished = replace(begin(4), accepted=bundled_ensemble().accepted[:3], candidates=77)
    save_ensemble(finished, out)
    said = calibrate(out, "--seed", "4", "--sets", "3")
    assert "training_share" in said
    assert "3 sets" in said
    assert "77 candidates" in said
    assert load_ensemble(out) == finished


def test_the_spread_is_shown_beside_what_sets_were_drawn_from() -> None:
    names = spread_table(bundled_ensemble().accepted).columns[0].cells
    assert {"cells", "staleness_steps", "training_share", "nominal_h"} <= set(names)
