"""The README tells the truth: its room map is the folders, its commands and examples work."""

import re
import tomllib
from pathlib import Path

import pytest
import typer

from opengyre.app.cli import app
from opengyre.config.load import parse_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "AGENTS", "CONTRIBUTING", "CHANGELOG")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
ROOM = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)
EXAMPLE = re.compile(r"```toml\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"\bopengyre ((?:[a-z]+ ?)+)")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def room_map() -> dict[str, str]:
    return dict(ROOM.findall(README.split("## Rooms\n")[1].split("\n## ")[0]))


def folders() -> set[str]:
    return {init.parent.name for init in (ROOT / "src" / "opengyre").glob("*/__init__.py")}


def heights() -> list[set[str]]:
    """Rooms by height, highest first, as the layers contract has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (c["layers"] for c in contracts if c["type"] == "layers")
    return [{room.strip() for room in layer.split("|")} for layer in layers]


def test_the_room_map_has_a_row_for_each_folder_and_no_other() -> None:
    assert set(room_map()) == folders()


def test_every_room_is_described_by_one_sentence() -> None:
    for room, sentence in room_map().items():
        assert sentence.endswith("."), room
        assert sentence.count(". ") == 0, room


def test_the_room_map_goes_down_as_imports_do() -> None:
    left = list(room_map())
    for layer in heights():
        assert set(left[: len(layer)]) == layer
        left = left[len(layer) :]
    assert not left


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_named_exist(page: Path) -> None:
    root = typer.main.get_command(app)
    for words in COMMAND.findall(page.read_text()):
        group = root
        for word in words.split():
            commands = getattr(group, "commands", None)
            if commands is None:
                break
            assert word in commands, f"opengyre {words}"
            group = commands[word]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_examples_load() -> None:
    whole = {"policy": {"model": "quickstart"}, "tasks": {"train": "a", "heldout": "b"}}
    examples = EXAMPLE.findall(README)
    assert examples
    for example in examples:
        parse_config(whole | tomllib.loads(example))


def test_agents_md_is_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) < 100
