"""A good folder loads; each broken one is refused with the file, what was wanted and a way out."""

from pathlib import Path

import pytest

from opengyre.core.errors import UserError
from opengyre.tasks.document import VERSIONS
from opengyre.tasks.load import load_task, load_tasks
from tests.tasks.conftest import WriteTask

COMPOSE = "environment/docker-compose.yaml"
DOCKERFILE = "environment/Dockerfile"


def test_a_good_folder_loads_with_defaults(write: WriteTask) -> None:
    task = load_task(write())
    assert (task.task_id, task.instruction) == ("hello", "Say hello in hello.txt.")
    assert (task.workdir, task.agent_timeout_s, task.verifier_timeout_s) == ("/work", None, 20)
    assert (task.reward_low, task.reward_high, task.notes) == (0, 1, ())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("key", ["version", "schema_version"])
def test_every_schema_version_loads_under_both_names(
    write: WriteTask, version: str, key: str
) -> None:
    assert load_task(write({"task.toml": f'{key} = "{version}"'})).task_id == "hello"


def test_settings_are_read_and_deprecated_keys_turned(write: WriteTask) -> None:
    text = """
    version = 1.0
    [metadata]
    difficulty = "hard"
    category = "files"
    reward_range = [-2, 3]
    [agent]
    timeout_sec = 90
    [verifier]
    env = { A = "${A:-7}" }
    [environment]
    allow_internet = false
    memory = "2G"
    workdir = "/srv/inner"
    env = { B = "b" }
    """
    task = load_task(write({"task.toml": text, DOCKERFILE: "FROM x\n"}))
    assert (task.difficulty, task.family, task.agent_timeout_s) == ("hard", "files", 90)
    assert (task.reward_low, task.reward_high, task.workdir) == (-2, 3, "/srv/inner")
    assert (task.verifier_env, task.env, task.notes) == ({"A": "7"}, {"B": "b"}, ())


def test_what_cannot_be_had_locally_is_noted(write: WriteTask) -> None:
    toml = "[agent]\ntimeout_secs = 3\n[environment]\ncpus = 4\n"
    notes = load_task(write({"task.toml": toml, DOCKERFILE: "FROM x\nRUN apt-get\n"})).notes
    assert notes == (
        "task.toml: unknown key agent.timeout_secs ignored; did you mean timeout_sec?",
        "Dockerfile line 2: RUN is not run locally",
        "task.toml: network_mode public: a local sandbox has no network",
    )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task.toml": None}, "write"),
        ({"task.toml": "a = = b"}, "TOML fault"),
        ({"task.toml": 'schema_version = "9.0"'}, "0.1, 1.0, 1.1, 1.2, 1.3, 1.4"),
        ({"task.toml": "[agent]\ntimeout_sec = -1"}, "agent.timeout_sec"),
        ({"task.toml": "[agent]\ntimeout_sec = nan"}, "agent.timeout_sec"),
        ({"task.toml": "agent = 3"}, "agent"),
        ({"task.toml": "[metadata]\nreward_range = [1, 0]"}, "low < high"),
        ({"task.toml": "[environment]\nmemory = 'much'"}, "much"),
        ({DOCKERFILE: "FROM x\nWORKDIR /tests"}, "WORKDIR"),
        ({DOCKERFILE: "FROM x", "task.toml": "[environment]\nworkdir = 'here'"}, "absolute"),
        ({"task.toml": "[environment]\nenv = { A = '${SECRET}' }"}, "A in"),
        ({"task.toml": "[[steps]]\nname = 'one'"}, "multi-step"),
        ({"steps/one/instruction.md": "x"}, "multi-step"),
        ({"instruction.md": None}, "instruction.md"),
        ({"instruction.md": " \n"}, "empty"),
        ({"tests/test.sh": None}, "test.sh"),
        ({DOCKERFILE: None}, "setup.sh"),
        ({DOCKERFILE: None, "task.toml": "[environment]\ndocker_image='a/b'"}, "image a/b"),
        ({COMPOSE: "services: {}"}, "docker-compose.yaml"),
        ({DOCKERFILE: "FROM x\nWORKDIR $HOME"}, "without variables"),
        ({DOCKERFILE: "FROM x\nWORKDIR /work\nCOPY files /etc/"}, "/etc"),
        ({DOCKERFILE: "FROM x\nWORKDIR /work\nCOPY nothing ."}, "nothing"),
        ({DOCKERFILE: "FROM x\nWORKDIR /work\nCOPY ../tests ."}, "line 3"),
        ({DOCKERFILE: "FROM x\nCOPY files"}, "COPY SOURCE"),
        ({DOCKERFILE: "FROM x\nCOPY <<EOF /srv/a\nEOF"}, "here-document"),
        ({DOCKERFILE: "FRUM x"}, "FRUM"),
    ],
)
def test_a_broken_folder_is_refused_by_name(
    write: WriteTask, changes: dict[str, str | None], named: str
) -> None:
    folder = write(changes)
    with pytest.raises(UserError) as refused:
        load_task(folder)
    message = str(refused.value)
    assert named in message
    assert str(folder) in message
    assert "wanted" in message
    assert "found" in message


def test_a_link_that_leaves_the_folder_is_refused(write: WriteTask) -> None:
    folder = write()
    (folder / "environment/files/out").symlink_to("/etc/passwd")
    with pytest.raises(UserError, match="a link to /etc/passwd"):
        load_task(folder)


def test_a_linked_script_that_leaves_the_folder_is_refused(write: WriteTask) -> None:
    folder = write({"tests/test.sh": None})
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests/test.sh").symlink_to("/bin/true")
    with pytest.raises(UserError, match="inside"):
        load_task(folder)


def test_tasks_come_by_name_from_a_folder_of_folders(write: WriteTask) -> None:
    write(name="b")
    folder = write(name="a")
    assert [task.task_id for task in load_tasks(folder.parent)] == ["a", "b"]
    assert [task.task_id for task in load_tasks(folder)] == ["a"]


def test_odd_names_and_empty_folders_are_refused(write: WriteTask, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="rename"):
        load_task(write(name="a b"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="one folder for each task"):
        load_tasks(tmp_path / "empty")
    with pytest.raises(UserError, match="no such folder"):
        load_tasks(tmp_path / "missing")
