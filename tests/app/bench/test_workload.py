import inspect
from pathlib import Path
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from opengyre.app.bench.cli import bench_policies
from opengyre.app.bench.policies import contenders, in_turns
from opengyre.app.bench.workload import (
    SPECIAL,
    Workload,
    configuration,
    waits_of_group,
    write_policy,
    write_workload,
)
from opengyre.model.qwen3 import causal_attend
from opengyre.tasks.load import load_tasks

SMALL = Workload(
    steps=2,
    cells=3,
    group_size=2,
    groups_per_step=1,
    steps_per_burst=1,
    hidden=64,
    layers=2,
    turns=2,
)


@given(index=st.integers(0, 999), seed=st.integers(0, 99), size=st.integers(2, 16))
def test_waits_follow_from_seed_and_place_alone(index: int, seed: int, size: int) -> None:
    work = Workload(seed=seed, group_size=size)
    waits = waits_of_group(work, index)
    assert waits == waits_of_group(work, index)
    assert waits != waits_of_group(work, index + 1)
    assert [len(member) for member in waits] == [work.turns] * size
    assert min(min(member) for member in waits) > 0


def test_waits_have_the_mean_that_was_asked_for() -> None:
    work = Workload(wait_s=3.0)
    totals = [sum(member) for index in range(400) for member in waits_of_group(work, index)]
    assert fmean(totals) == pytest.approx(3.0, rel=0.05)


def test_the_slowest_of_a_group_waits_longer_than_the_mean() -> None:
    """Model time changes the ratio of the whole execution in both directions; about 1.5 is wanted."""
    totals = [sum(member) for member in waits_of_group(Workload(), 0)]
    assert 1.6 < max(totals) / fmean(totals) < 1.9


def test_a_fresh_policy_hardly_ever_ends_an_answer_by_itself(tmp_path: Path) -> None:
    work = Workload()
    model = write_policy(work, tmp_path / "policy")
    tokenizer = Tokenizer.from_file(str(tmp_path / "policy" / "tokenizer.json"))
    text = "<|im_start|>user\nMend it.<|im_end|>\n<|im_start|>assistant\nxq7"
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    with torch.no_grad():
        hidden = model.hidden(torch.tensor(ids), torch.arange(len(ids)), causal_attend)
        odds = model.logits(hidden).softmax(-1)
    special = [tokenizer.token_to_id(token) for token in SPECIAL]
    after_letters = [i for i, token in enumerate(ids) if token not in special]
    assert float(odds[after_letters][:, special].sum(-1).max()) < 1e-4


def test_contenders_differ_in_policy_and_split_alone(tmp_path: Path) -> None:
    write_workload(SMALL, tmp_path)
    assert len(load_tasks(tmp_path / "tasks")) == SMALL.groups
    seen, rest = [], []
    for contender in contenders(3, forecast=True):
        config = configuration(SMALL, tmp_path, contender.policy, contender.training_cells)
        raw = config.model_dump()
        seen.append((raw["schedule"].pop("policy"), raw["cells"].pop("training_cells")))
        raw["run"].pop("name")
        rest.append(raw)
    assert rest == [rest[0]] * 5
    assert seen == [
        ("elastic", 1),
        ("colocate", 1),
        ("async", 1),
        ("async", 2),
        ("forecast", 1),
    ]
    assert contenders(3) == contenders(3, forecast=True)[:-1]


@given(cells=st.integers(2, 5), repeats=st.integers(1, 7))
def test_each_repeat_has_every_contender_once_and_another_one_first(
    cells: int, repeats: int
) -> None:
    everyone = contenders(cells)
    order = list(in_turns(everyone, repeats))
    for repeat in range(repeats):
        entered = [contender for number, contender in order if number == repeat]
        assert sorted(entered, key=everyone.index) == everyone
        assert entered[0] == everyone[repeat % len(everyone)]


def test_the_command_begins_with_the_workload_that_is_documented() -> None:
    """The command line states its defaults again, since the workload needs torch."""
    command = {n: p.default for n, p in inspect.signature(bench_policies).parameters.items()}
    names = {
        "steps": "steps",
        "cells": "cells",
        "seed": "seed",
        "wait": "wait_s",
        "burst": "steps_per_burst",
        "staleness": "staleness_steps",
    }
    assert {name: command[name] for name in names} == {
        name: getattr(Workload(), attribute) for name, attribute in names.items()
    }
