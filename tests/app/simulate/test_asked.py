"""An option that would do nothing is refused, and what cannot be written is told at once."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from opengyre.app.cli import app
from opengyre.app.simulate.asked import APPLIES
from opengyre.app.simulate.outputs import check_outputs
from opengyre.core.errors import UserError


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["paper", "--cells", "8"], "leave out --cells"),
        (["paper", "--tuned", "--html", "x.html"], "leave out --html"),
        (["paper", "--plain", "--html", "x.html"], "leave out --html"),
        (["paper", "--plain", "--calls", "3"], "leave out --calls"),
        (["paper", "--plain", "--tuned"], "leave out --plain"),
        (["policies", "--calls", "3"], "leave out --calls"),
        (["calibrate", "--json", "x.json"], "leave out --json"),
        (["deepswe", "--tuned"], "leave out --tuned"),
        (["deepswe", "--jobs", "2"], "leave out --jobs"),
        (["deepswe", "--against", "x"], "leave out --against"),
        (["--list", "--burst", "2"], "leave out --cells, --policy"),
        (["--from", "x", "--tuned"], "leave out --tuned"),
        (["deepswe", "--json", "/dev/null/x"], "with --json"),
        (["deepswe", "--html", "/"], "with --html"),
    ],
)
def test_a_command_that_cannot_do_what_was_asked_says_so_first(words: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["simulate", *words])
    assert isinstance(result.exception, UserError)
    assert said in str(result.exception)


def test_every_option_of_the_table_exists() -> None:
    shown = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"}).output
    for name in set(APPLIES) - {"change"}:
        assert f"--{name}" in shown


def test_a_file_that_can_be_written_is_left_as_it_is(tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "folder" / "new.json"
    old.write_text("kept")
    check_outputs(json=old, html=new)
    assert old.read_text() == "kept"
    assert not new.exists()
    with pytest.raises(UserError, match="a file for each"):
        check_outputs(json=old, html=tmp_path / "folder" / ".." / "old.json")
