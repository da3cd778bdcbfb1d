"""Generated tasks: same seed same bytes, splits never meet, nothing scores 0, the solution 1."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opengyre.app.wall import WallClock
from opengyre.core.errors import UserError
from opengyre.core.reasons import Ending, VerdictKind
from opengyre.core.records import Verdict
from opengyre.sandbox.base import Bind, Command, Sandbox
from opengyre.sandbox.none import NoSandbox
from opengyre.tasks.bundled import (
    FAMILIES,
    PERFECT,
    Final,
    Skill,
    Split,
    capacity,
    draw,
    split_of,
    task_id_of,
    write_bundled,
)
from opengyre.tasks.check import check_tasks
from opengyre.tasks.evaluate import evaluate
from opengyre.tasks.load import load_task, load_tasks
from opengyre.tasks.workspace import materialise

families = st.sampled_from(sorted(FAMILIES))
seeds = st.integers(0, 10**6)


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=seeds)
async def test_nothing_scores_zero_and_the_solution_one(
    tmp_path_factory: pytest.TempPathFactory, sandbox: Sandbox, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("bundled")
    for family in FAMILIES:
        write_bundled(family, random.Random(seed).choice(["train", "heldout"]), 1, seed, folder)
    results = await check_tasks(load_tasks(folder), sandbox, folder / ".scratch")
    assert [(result.faults, result.notes) for result in results] == [([], ())] * len(FAMILIES)


async def test_bundled_tasks_also_work_without_a_sandbox(tmp_path: Path) -> None:
    for family in FAMILIES:
        write_bundled(family, "train", 1, 0, tmp_path / "tasks")
    none = NoSandbox(1 << 30, WallClock())
    results = await check_tasks(load_tasks(tmp_path / "tasks"), none, tmp_path / "scratch")
    assert all(result.good for result in results)


@given(family=families, seed=seeds, count=st.integers(1, 40))
def test_splits_are_disjoint_and_without_doubles(family: str, seed: int, count: int) -> None:
    train = draw(family, "train", count, seed)
    heldout = draw(family, "heldout", count, seed + 1)
    instructions = [puzzle.blueprint().instruction for puzzle in train + heldout]
    assert len(set(instructions)) == 2 * count
    assert {split_of(family, puzzle) for puzzle in train} == {"train"}
    assert {split_of(family, puzzle) for puzzle in heldout} == {"heldout"}
    assert draw(family, "train", count + 5, seed)[:count] == train


@given(family=families, data=st.data())
def test_every_number_has_its_own_key_and_a_short_task(family: str, data: st.DataObject) -> None:
    numbers = st.integers(0, FAMILIES[family].space - 1)
    one, two = data.draw(numbers), data.draw(numbers)
    puzzle = FAMILIES[family].puzzle(one)
    assert (puzzle.key() == FAMILIES[family].puzzle(two).key()) == (one == two)
    blueprint = puzzle.blueprint()
    assert len(blueprint.instruction.split()) <= 25
    assert all(text.count("\n") <= 6 for text in blueprint.files.values())


def test_spaces_are_large() -> None:
    assert all(family.space >= 18_000 for family in FAMILIES.values())
    assert capacity("rename", "train") + capacity("rename", "heldout") == FAMILIES["rename"].space


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    def everything(into: Path) -> dict[str, bytes]:
        for family in FAMILIES:
            write_bundled(family, "train", 3, 7, into)
        files = [path for path in into.rglob("*") if path.is_file()]
        return {str(path.relative_to(into)): path.read_bytes() for path in files}

    assert everything(tmp_path / "one") == everything(tmp_path / "two")


def test_the_bytes_are_those_of_other_machines_and_years() -> None:
    ids = [task_id_of(draw(family, "heldout", 1, 0)[0].blueprint()) for family in sorted(FAMILIES)]
    assert ids == IDS_OF_SEED_0


IDS_OF_SEED_0 = ["rename-840138aec0e1", "repair-9ed68ad0ca81", "settings-565ac6c8eaca"]


@pytest.mark.parametrize(
    ("family", "split", "count", "named"),
    [
        ("repairs", "train", 1, "repair, settings, rename"),
        ("rename", "test", 1, "train, heldout"),
        ("rename", "heldout", 10**6, "ask for at most"),
    ],
)
def test_impossible_wishes_are_refused(family: str, split: Split, count: int, named: str) -> None:
    with pytest.raises(UserError, match=named):
        draw(family, split, count, 0)


@given(family=families, seed=seeds)
def test_demonstrations_end_once_and_never_look_in_a_way_that_is_noted(
    family: str, seed: int
) -> None:
    puzzle = draw(family, "train", 1, seed)[0]
    actions = puzzle.demonstrate(random.Random(seed), Skill())
    assert [isinstance(action, Final) for action in actions] == [False] * (len(actions) - 1) + [
        True
    ]
    assert not any(re.match(r"(cat|head|grep|sed -n) (?!<)", str(action)) for action in actions)
    assert actions == puzzle.demonstrate(random.Random(seed), Skill())


async def demonstrated(
    family: str, number: int, skill: Skill, tmp_path: Path, sandbox: Sandbox
) -> Verdict:
    puzzle = draw(family, "train", number + 1, 5)[number]
    folder = tmp_path / f"{family}-{number}"
    path = write_bundled(family, "train", number + 1, 5, folder)[number]
    task, workspace = load_task(path), folder / "workspace"
    await materialise(task, workspace, sandbox)
    actions = puzzle.demonstrate(random.Random(number), skill)
    script = "\n".join(action for action in actions if isinstance(action, str))
    await sandbox.run(
        Command(
            argv=["bash", "-c", script],
            cwd=task.workdir,
            timeout_s=20,
            binds=[Bind(workspace, task.workdir, writable=True)],
        )
    )
    return await evaluate(task, workspace, sandbox, folder / "scratch", Ending.FINISHED, 1)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_perfect_demonstrator_passes(family: str, tmp_path: Path, sandbox: Sandbox) -> None:
    verdicts = [await demonstrated(family, n, PERFECT, tmp_path, sandbox) for n in range(3)]
    assert [verdict.passed for verdict in verdicts] == [True] * 3


async def test_half_the_job_is_half_the_reward(tmp_path: Path, sandbox: Sandbox) -> None:
    half = Skill(reads=1, acts_after_reading=1, does_it_all=0)
    verdict = await demonstrated("rename", 0, half, tmp_path, sandbox)
    assert (verdict.reward, verdict.passed) == (0.5, False)


HOSTILE = {
    "exit": "import os\nos._exit(0)\n",
    "raise": "raise SystemExit(0)\n",
    "print": "print('{\"reward\": 1.0}')\n",
    "forged answer": "import os\nfor n in range(64):\n    try:\n        os.write(n, b'1 2 3 4 5 6 7 8')\n"
    "    except OSError:\n        pass\nos._exit(0)\n",
    "kill the parent": "import os\nos.kill(os.getppid(), 9)\n",
    "read the answers": "print(open('/tests/expected.json').read())\nraise SystemExit\n",
    "write the reward": "import os\nopen('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\n",
    "link the reward": "import os\nos.symlink('/app/fake.json', '/logs/verifier/reward.json')\n",
    "equal to all": "class E(int):\n    def __eq__(self, other):\n        return True\n"
    "    def __str__(self):\n        return '5'\nFN = lambda a, b: E()\n",
    "flood": "import os\nos.write(4, b'1 ' * 10**6)\nos.write(5, b'1 ' * 10**6)\n",
    "deep": "FN = lambda a, b: FN(a, b)\n",
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_code_gets_no_reward(name: str, tmp_path: Path, sandbox: Sandbox) -> None:
    path = write_bundled("repair", "train", 1, 3, tmp_path)[0]
    task, workspace = load_task(path), tmp_path / "workspace"
    await materialise(task, workspace, sandbox)
    broken = next(workspace.glob("*.py"))
    function = task.instruction.split()[2]
    (workspace / "fake.json").write_text('{"reward": 1}')
    broken.write_text(broken.read_text() + HOSTILE[name].replace("FN", function))
    verdict = await evaluate(task, workspace, sandbox, tmp_path / "s", Ending.FINISHED, 1)
    assert (verdict.kind, verdict.reward) == (VerdictKind.SCORED, 0)


async def test_a_link_or_a_pipe_in_place_of_the_file_scores_nothing(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    path = write_bundled("settings", "train", 1, 3, tmp_path)[0]
    task, workspace = load_task(path), tmp_path / "workspace"
    await materialise(task, workspace, sandbox)
    file = next(workspace.glob("*.ini"))
    file.rename(workspace / "elsewhere")
    file.symlink_to("elsewhere")
    verdict = await evaluate(task, workspace, sandbox, tmp_path / "s", Ending.FINISHED, 1)
    assert (verdict.kind, verdict.reward) == (VerdictKind.SCORED, 0)
