"""The words that tell Claude Code's helpers are in the programs that are said to have them."""

import mmap

import pytest

from opengyre.tree.roles.claude_code import ALONE, APART, BESIDE, BOTH, NEWER, VERIFIER
from tests.conformance.programs import program

pytestmark = pytest.mark.harnesses

PROGRAMS = {"2.1.220": "claude-code-2.1.220", "2.1.332": "claude-code"}
OPENINGS = BESIDE | APART | ALONE | {VERIFIER: BOTH}


@pytest.mark.parametrize("version", BOTH)
def test_an_opening_is_in_the_programs_that_have_it_and_in_no_other(version: str) -> None:
    with program(PROGRAMS[version]).open("rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found = {opening for opening in OPENINGS if text.find(opening.encode()) >= 0}
    assert NEWER
    assert found == {opening for opening, versions in OPENINGS.items() if version in versions}
