"""Bad input ends with exit code 2 and one line: what was wanted, what was found, what to do."""

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opengyre.app import cli
from opengyre.app.sources import policy_folder
from opengyre.config.load import load_config
from opengyre.store.rows import EventRow
from opengyre.store.run import RunStore

CONFIG = """
[run]
name = "bad"
folder = "{here}/runs"
[policy]
model = "quickstart"
context_tokens = 512
max_new_tokens = 32
[tasks]
train = "bundled:repair"
heldout = "bundled:repair"
train_count = 4
heldout_count = 2
[harness]
name = "command"
command = ["true"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "bad.toml"
    path.write_text(CONFIG.format(here=tmp_path))
    return path


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command line, which must refuse; returns the one line that it says."""

    def run(*args: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["opengyre", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr().err
        assert ended.value.code == 2, said
        assert said.startswith("opengyre: ")
        assert said.count("\n") == 1
        return said

    return run


def edited(config: Path, old: str, new: str) -> Path:
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    return config


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('train = "bundled:repair"', 'train = "bundled:reapir"', "choose one of repair"),
        ('train = "bundled:repair"', 'train = "bundled:repair+repair"', "family once"),
        (
            'train = "bundled:repair"\nheldout = "bundled:repair"\ntrain_count = 4',
            'train = "bundled:repair+settings+rename"\nheldout = "bundled:repair"\ntrain_count = 2',
            "at least 3",
        ),
        ('"quickstart"', '"/nowhere"', "nothing at /nowhere"),
        ('["true"]', '["no-such-agent"]', "no-such-agent of harness.command"),
        ("context_tokens = 512", "context_tokens = 2000", "policy.context_tokens to at most 1024"),
        ('name = "command"', 'name = "comand"', "did you mean command?"),
    ],
)
def test_an_impossible_configuration(
    config: Path, told: Callable[..., str], old: str, new: str, words: str
) -> None:
    bad = edited(config, old, new)
    assert words in told("train", bad)
    assert words in told("train", bad), "a run that never began stands in nobody's way"


def drop(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def change(name: str, how: Callable[[Any], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        how(value)
        (folder / name).write_text(json.dumps(value))

    return apply


def without_start(tokenizer: Any) -> None:
    tokenizer["added_tokens"] = [
        token for token in tokenizer["added_tokens"] if token["content"] != "<|im_start|>"
    ]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop("config.json"), "no config.json"),
        (change("config.json", lambda c: c.update(model_type="llama")), "model_type 'llama'"),
        (drop("tokenizer.json"), "save the tokenizer into the model's folder"),
        (change("tokenizer.json", lambda t: t.clear()), "an unreadable one"),
        (change("tokenizer.json", without_start), "<|im_start|> as one special token"),
        (change("config.json", lambda c: c.update(vocab_size=100)), "a vocab_size of 100"),
    ],
)
def test_a_folder_that_is_no_policy(
    config: Path,
    tmp_path: Path,
    told: Callable[..., str],
    damage: Callable[[Path], None],
    words: str,
) -> None:
    model = tmp_path / "model"
    shutil.copytree(policy_folder(load_config(config)), model)
    damage(model)
    assert words in told("train", edited(config, '"quickstart"', f'"{model}"'))


def begin(config: Path, told: Callable[..., str]) -> Path:
    """A run that began; how far it came does not matter here."""
    told("train", edited(config, '["true"]', '["no-such-agent"]'))
    folder = config.parent / "runs" / "bad"
    with RunStore(folder / "run.sqlite") as store:
        asyncio.run(store.put_event(EventRow(at=0.0, kind="phase", fields={"name": "before"})))
    return folder


def test_a_run_is_not_overwritten(config: Path, told: Callable[..., str]) -> None:
    folder = begin(config, told)
    before = (folder / "config.toml").read_bytes()
    config.write_text(config.read_text() + "\n# changed\n")
    assert "add --resume" in told("train", config)
    assert (folder / "config.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("train_count = 4", "train_count = 5", "tasks.train_count was 4 and is 5"),
        (
            "[harness]",
            "[schedule]\ngroup_size = 3\n[harness]",
            "schedule.group_size was 8 and is 3",
        ),
        ("[policy]", "seed = 9\n[policy]", "run.seed was 0 and is 9"),
    ],
)
def test_a_run_does_not_go_on_as_another(
    config: Path, told: Callable[..., str], old: str, new: str, key: str
) -> None:
    folder = begin(config, told)
    before = (folder / "config.toml").read_bytes()
    assert key in told("train", edited(config, old, new), "--resume")
    assert (folder / "config.toml").read_bytes() == before


def test_a_run_may_go_on_with_another_learning_rate(config: Path, told: Callable[..., str]) -> None:
    begin(config, told)
    changed = edited(config, "[harness]", "[learner]\nlearning_rate = 0.1\n[harness]")
    assert "no-such-agent" in told("train", changed, "--resume"), "it came past the configuration"


def test_no_run_to_go_on_with(config: Path, told: Callable[..., str]) -> None:
    assert "leave out --resume" in told("train", config, "--resume")
    assert not (config.parent / "runs").exists()


def test_a_pattern_in_a_message_is_shown_whole(config: Path, told: Callable[..., str]) -> None:
    assert "'^[a-z0-9][a-z0-9._-]*$'" in told("train", config, "--name", "No Good")


@pytest.mark.parametrize("command", [["report"], ["tree"]])
def test_a_folder_that_is_no_run(
    tmp_path: Path, told: Callable[..., str], command: list[str]
) -> None:
    more = ["list"] if command == ["tree"] else []
    assert "no run.sqlite" in told(*command, tmp_path, *more)
    (tmp_path / "run.sqlite").write_text("not a database " * 100)
    assert "not a database" in told(*command, tmp_path, *more)


def test_a_run_folder_that_cannot_be_made(config: Path, told: Callable[..., str]) -> None:
    (config.parent / "runs").write_text("a file")
    assert "run.folder" in told("train", config)


def test_tasks_are_not_written_over(tmp_path: Path, told: Callable[..., str]) -> None:
    into = tmp_path / "tasks"
    told("tasks", "write", "nosuch", into)
    cli.app(["tasks", "write", "rename", str(into), "--count", "1"], standalone_mode=False)
    assert "choose another folder" in told("tasks", "write", "rename", into, "--count", "1")


def test_a_full_disk_is_one_line(told: Callable[..., str], tmp_path: Path) -> None:
    """/dev/full is a disk without any space left."""
    with RunStore(tmp_path / "run.sqlite"):
        pass
    (tmp_path / "report.html").symlink_to("/dev/full")
    assert "No space left" in told("report", tmp_path)
