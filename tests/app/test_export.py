"""What is exported is what was trained: rows, loss and conversations equal the run's own."""

import asyncio
import json
import random
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.app.recordings import a_config, scored, write_calls, write_run
from tests.learner.made import micro, tiny_config
from tests.proxy.tokenizers_for_tests import small_tokenizer
from tests.tree.strategies import Grown, Member, executions, groups, make_call

from opengyre.app.export.atif import Scene, document
from opengyre.app.export.command import family_of
from opengyre.app.export.turns import ENDING, OPENING, turns_of
from opengyre.app.export.write import Choice, choice_of, export_run
from opengyre.app.recorded import NO_VERDICT, Execution, Recorded, books_of, config_of, open_run
from opengyre.config.run import LearnerSection
from opengyre.core.errors import UserError
from opengyre.core.reasons import Role
from opengyre.learner.policy import new_policy
from opengyre.learner.trainer import Trainer
from opengyre.proxy.families.base import Family
from opengyre.proxy.families.qwen3 import Qwen3Family
from opengyre.store.parquet import Row, RowWriter, read_rows, samples_of
from opengyre.store.run import RunStore
from opengyre.tree.record import ExecutionTree
from opengyre.tree.select import select

FEW = settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
PARQUET = Choice(formats=("parquet",))


def no_family() -> Family:
    raise AssertionError("nothing is decoded for Parquet")


def exported(run: Path, choice: Choice = PARQUET) -> list[Row]:
    out = run / "out"
    export_run(run, out, choice, no_family)
    return list(read_rows(out / "trajectories.parquet"))


@FEW
@given(groups("g1"), groups("g2", 3), groups("h", 2), st.integers(0, 3), st.integers(4, 64))
def test_trajectories_survive_the_file_and_are_those_that_the_learner_got(
    first: list[Member], second: list[Member], heldout: list[Member], j_max: int, budget: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        run = Path(name)
        config = a_config(j_max=j_max, budget=max(64, budget))
        given_samples = write_run(run, {"g1": first, "g2": second}, config, heldout=heldout)
        if not any(tree.calls for _, tree, _ in [*first, *second, *heldout]):
            with pytest.raises(UserError, match="to export"):
                exported(run)
            return
        rows = exported(run)
        wanted = [sample for group in given_samples.values() for sample in group.samples]
        found = list(samples_of(rows))
        key = lambda sample: sample.execution_id  # noqa: E731
        assert sorted(found, key=key) == sorted(wanted, key=key)
        for row in rows:
            lengths = {len(row.token_ids), len(row.mask), len(row.logprobs), len(row.versions)}
            assert len(lengths) == 1
            assert all(
                (version >= 0) == target
                for version, target in zip(row.versions, row.mask, strict=True)
            )
        with open_run(run) as store:
            books_of(Recorded(store, config_of(run, store)).ledgers()).total.check()


def a_run(folder: Path) -> Path:
    """Two groups that differ, one that is not whole, a held-out execution, one without an end."""

    def member(name: str, reward: float) -> Member:
        calls = [
            make_call(f"{name}-m", execution_id=name, suffix=[1, 2], output=[3, 4]),
            make_call(
                f"{name}-s",
                index=1,
                execution_id=name,
                suffix=[1, 5],
                output=[6, 7, 8],
                role=Role.SUB_AGENT,
            ),
            make_call(
                f"{name}-n",
                index=2,
                execution_id=name,
                parent_id=f"{name}-m",
                reused=4,
                suffix=[9],
                output=[10],
            ),
        ]
        return name, ExecutionTree(calls), scored(reward)

    pairs = {g: [member(f"{g}-0", 0.0), member(f"{g}-1", 1.0)] for g in ("g1", "g2", "g3")}
    write_run(folder, pairs, a_config(), heldout=[member("h-0", 1.0)], unfinished=("g3",))
    with RunStore(folder / "run.sqlite") as store:
        asyncio.run(write_calls(store, member("z-0", 0.0)[1].calls))
    return folder


def test_the_loss_of_the_file_is_the_loss_of_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pairs = {"g1": [*a_group(0)], "g2": [*a_group(1)]}
    given_samples = write_run(run, pairs, a_config())
    own = [sample for group in given_samples.values() for sample in group.samples]
    model = new_policy(tiny_config(), 0, tmp_path / "model").double()
    losses, gradients = [], []
    for samples in (own, list(samples_of(exported(run)))):
        trainer = Trainer(model, LearnerSection(), temperature=1.0)
        losses.append(trainer.accumulate(micro(samples)).loss_sum)
        gradients.append(torch.cat([g.flatten() for _, g in trainer.gradients()]).clone())
        trainer.zero()
    assert losses[0] == losses[1]
    assert torch.equal(gradients[0], gradients[1])
    assert gradients[0].any()


def a_group(seed: int) -> list[Member]:
    draw = random.Random(seed)
    members = []
    for number in range(3):
        name = f"g{seed}-{number}"
        output = [draw.randrange(12) for _ in range(5)]
        calls = [
            make_call(f"{name}-{i}", index=i, execution_id=name, suffix=[1, i], output=output)
            for i in range(2)
        ]
        members.append((name, ExecutionTree(calls), scored(float(number))))
    return members


def test_every_row_says_whether_and_why_not_it_was_trained(tmp_path: Path) -> None:
    rows = exported(a_run(tmp_path))
    why = {row.execution_id: row.why_untrained for row in rows}
    assert why == {
        "g1-0": None,
        "g1-1": None,
        "g2-0": None,
        "g2-1": None,
        "g3-0": "group-unfinished",
        "g3-1": "group-unfinished",
        "h-0": "held-out",
        "z-0": "no-verdict",
    }
    assert Counter(row.role for row in rows) == {"main": 8, "sub-agent": 8}
    assert {row.advantage for row in rows if row.trained} == {-1.0, 1.0}
    first = rows[0]
    assert (first.token_ids, first.mask) == (
        [1, 2, 3, 4, 9, 10],
        [False, False, True, True, False, True],
    )
    assert first.logprobs == [0.0, 0.0, -1.0, -1 - 1 / 64, 0.0, -3.0]
    assert first.versions == [-1, -1, 0, 1, -1, 1]
    assert (first.step, first.task_id, first.execution_tokens) == (1, "task-of-g1", 6)


def test_options_choose_splits_roles_and_scores(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    for choice, wanted in (
        (
            choice_of(["parquet"], "heldout", [], scored_only=False),
            {("h-0", "main"), ("h-0", "sub-agent")},
        ),
        (
            choice_of(["parquet"], "heldout", ["sub-agent"], scored_only=True),
            {("h-0", "sub-agent")},
        ),
    ):
        found = exported(run, choice)
        assert {(row.execution_id, row.role) for row in found} == wanted
        (run / "out" / "trajectories.parquet").unlink()
        (run / "out" / "README.md").unlink()
        (run / "out").rmdir()
    assert "z-0" not in {
        row.execution_id for row in exported(run, Choice(("parquet",), scored_only=True))
    }


@pytest.mark.parametrize(
    ("formats", "split", "roles"),
    [(["csv"], None, []), ([], "test", []), ([], None, ["auxiliary"])],
)
def test_an_unknown_option_names_the_known_ones(
    formats: list[str], split: str | None, roles: list[str]
) -> None:
    with pytest.raises(UserError, match="--"):
        choice_of(formats, split, roles, scored_only=False)


def test_faults_are_told_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"run\.sqlite"):
        export_run(tmp_path / "none", out, PARQUET, no_family)
    run = a_run(tmp_path / "run")
    (tmp_path / "taken").mkdir()
    with pytest.raises(UserError, match="something is there"):
        export_run(run, tmp_path / "taken", PARQUET, no_family)
    with pytest.raises(UserError, match="name another folder"):
        export_run(run, run / "run.sqlite" / "out", PARQUET, no_family)
    recording = tmp_path / "recording"
    with RunStore(recording / "run.sqlite") as store:
        asyncio.run(write_calls(store, [make_call("c", suffix=[1], output=[2])]))
    with pytest.raises(UserError, match="--tokenizer"):
        export_run(recording, out, Choice(), lambda: family_of(recording, None))
    for named, found in ((tmp_path / "nope", "no such folder"), (run / "run.sqlite", "a file")):
        with pytest.raises(UserError, match=f"model's folder at {named}; found {found}"):
            export_run(run, out, Choice(), partial(family_of, run, named))
    assert not out.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recording", "run", "taken"]


def test_row_groups_are_written_as_they_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opengyre.store.parquet.ROW_GROUP_TOKENS", 10)
    rows = exported(a_run(tmp_path))
    file = pyarrow.parquet.ParquetFile(tmp_path / "out" / "trajectories.parquet")
    assert file.num_row_groups > 3
    assert file.metadata.num_rows == len(rows)
    about = json.loads(file.schema_arrow.metadata[b"opengyre"])
    assert about["schema_version"] == 1
    assert about["run"] == tmp_path.name
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_the_folder_loads_with_datasets(tmp_path: Path) -> None:
    import datasets

    rows = exported(a_run(tmp_path / "run"))
    loaded = datasets.load_dataset(
        str(tmp_path / "run" / "out"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert loaded.num_rows == len(rows)
    assert [Row(**dict(row)) for row in loaded] == rows


def test_another_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(UserError, match="schema"):
        list(read_rows(path))
    path.write_text("no table")
    with pytest.raises(UserError, match="Parquet"):
        list(read_rows(path))
    with RowWriter(path, {}):
        pass
    assert list(read_rows(path)) == []


# --- ATIF


def qwen() -> Qwen3Family:
    return Qwen3Family(small_tokenizer())


STEP_KEYS = {"step_id", "source", "message", "reasoning_content", "tool_calls", "observation"}
STEP_KEYS |= {"metrics", "is_copied_context", "llm_call_count", "extra"}
AGENT_KEYS = {"reasoning_content", "tool_calls", "metrics"}
"""As ATIF-v1.7 names them; the last only of agents."""


def check_atif(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The rules of ATIF-v1.7; returns the steps of all trajectories."""
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["agent"]["name"]
    assert document["agent"]["version"]
    assert document["steps"]
    for number, step in enumerate(document["steps"], 1):
        assert step["step_id"] == number
        assert set(step) <= STEP_KEYS
        assert step["source"] in {"system", "user", "agent"}
        assert isinstance(step["message"], str)
        assert step["source"] == "agent" or not AGENT_KEYS & set(step)
        ids = {call["tool_call_id"] for call in step.get("tool_calls", [])}
        for result in step.get("observation", {}).get("results", []):
            assert result.get("source_call_id") in ids | {None}
    assert document["final_metrics"]["total_steps"] == len(document["steps"])
    below = document.get("subagent_trajectories", [])
    names = [one["trajectory_id"] for one in below]
    assert len(set(names)) == len(names)
    steps: list[dict[str, Any]] = document["steps"]
    return steps + [step for one in below for step in check_atif(one)]


def documents(run: Path) -> dict[str, dict[str, Any]]:
    export_run(run, run / "out", Choice(("atif",)), qwen)
    files = sorted((run / "out" / "atif").iterdir())
    return {file.stem: json.loads(file.read_text()) for file in files}


@FEW
@given(executions())
def test_every_answer_is_an_own_step_of_the_document_once(grown: Grown) -> None:
    tree = grown.tree
    scene = Scene("run", None, qwen())
    selection = select(tree, 5, random.Random(0))
    made = document(scene, Execution("e", None, NO_VERDICT), tree, selection)
    if made is None:
        assert not tree.calls
        return
    answers = [step for step in check_atif(made) if step["source"] == "agent"]
    own = [step["extra"]["call_id"] for step in answers if not step.get("is_copied_context")]
    assert len(set(own)) == len(own)
    assert set(own) >= {call.call_id for call in tree.calls if call.output_ids}
    for step in answers:
        call, metrics = tree.call(step["extra"]["call_id"]), step["metrics"]
        kept = metrics["completion_tokens"]
        assert metrics["completion_token_ids"] == call.output_ids[:kept]
        assert metrics["logprobs"] == call.output_logprobs[:kept]


def test_a_conversation_reads_as_system_user_calls_and_results(tmp_path: Path) -> None:
    family = qwen()
    first = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nFix it.<|im_end|>\n"
    asked = (
        "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n"
        '{"name": "Bash", "arguments": {"command": "ls"}}\n</tool_call><|im_end|>'
    )
    result = (
        "\n<|im_start|>user\n<tool_response>\na.py\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    prompt = family.encode(first + "<|im_start|>assistant\n")
    output = family.encode(asked)
    calls = [
        make_call("c0", suffix=prompt, output=output),
        make_call(
            "c1",
            index=1,
            parent_id="c0",
            reused=len(prompt) + len(output),
            suffix=family.encode(result),
            output=family.encode("Done.<|im_end|>"),
        ),
    ]
    write_run(tmp_path, {"g": [("e", ExecutionTree(calls), scored(1.0))]}, a_config())
    document = documents(tmp_path)["e"]
    steps = check_atif(document)
    assert [(step["source"], step["message"]) for step in steps] == [
        ("system", "Be brief."),
        ("user", "Fix it."),
        ("agent", "I look."),
        ("agent", "Done."),
    ]
    assert steps[2]["reasoning_content"] == "hm"
    (call,) = steps[2]["tool_calls"]
    assert (call["function_name"], call["arguments"]) == ("Bash", {"command": "ls"})
    assert steps[2]["observation"]["results"] == [
        {"content": "a.py", "source_call_id": call["tool_call_id"]}
    ]
    assert document["extra"]["reward"] == 1.0


def test_sub_agents_are_embedded_and_repeated_beginnings_are_marked(tmp_path: Path) -> None:
    document = documents(a_run(tmp_path))["g1-0"]
    steps = check_atif(document)
    assert document["trajectory_id"] == "g1-0-n"
    assert [one["extra"]["role"] for one in document["subagent_trajectories"]] == ["sub-agent"]
    assert len([step for step in steps if "metrics" in step]) == 3


@given(st.text(max_size=40))
def test_no_text_of_an_unknown_markup_is_lost(text: str) -> None:
    found = turns_of(text, asks=True)
    if not OPENING.search(text) and not ENDING.search(text):
        assert "".join(turn.text for turn in found).strip() == text.strip()
