"""A checkpoint gives back weights and optimiser exactly, or is not there."""

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from opengyre.core.errors import LearnerError, UserError
from opengyre.learner import checkpoint
from opengyre.learner.checkpoint import Mark
from opengyre.learner.trainer import Trainer
from opengyre.model.qwen3 import causal_attend
from tests.learner.made import learner, micro, random_sample, tiny_policy

WORK = [micro([random_sample(random.Random(seed))]) for seed in range(4)]


def trained(folder: Path, steps: int) -> Trainer:
    settings = learner(clip_low=0.9, clip_high=9.0, weight_decay=0.01)
    trainer = Trainer(tiny_policy(folder, dtype=torch.float32), settings, 1.0)
    go_on(trainer, 0, steps)
    return trainer


def go_on(trainer: Trainer, start: int, end: int) -> None:
    for work in WORK[start:end]:
        trainer.accumulate(work)
        trainer.step(1, 1e-2)


def test_training_goes_on_exactly_after_a_reload(tmp_path: Path) -> None:
    like = tmp_path / "policy"
    straight = trained(like, 2)
    mark = Mark(step=2, version=1)
    folder = checkpoint.save(
        tmp_path / "saved", straight.model, like, straight.optimiser_state(), mark, 1
    )
    read = checkpoint.load(folder)
    assert read.mark == checkpoint.read_mark(folder) == mark
    resumed = Trainer(read.model, learner(clip_low=0.9, clip_high=9.0, weight_decay=0.01), 1.0)
    resumed.load_optimiser_state(read.optimiser)
    go_on(straight, 2, 4)
    go_on(resumed, 2, 4)
    pairs = zip(straight.model.named_weights(), resumed.model.named_weights(), strict=True)
    assert all(torch.equal(a, b) for (_, a), (_, b) in pairs)
    state = resumed.optimiser_state()
    assert all(torch.equal(t, state[name]) for name, t in straight.optimiser_state().items())


def test_transformers_loads_a_checkpoint_and_agrees(tmp_path: Path) -> None:
    from transformers import Qwen3ForCausalLM

    trainer = trained(tmp_path / "policy", 1)
    folder = checkpoint.save(
        tmp_path / "saved", trainer.model, tmp_path / "policy", {}, Mark(step=1, version=1), 1
    )
    theirs = Qwen3ForCausalLM.from_pretrained(folder, attn_implementation="sdpa")
    ids = torch.tensor([1, 5, 2, 7, 7, 3])
    with torch.no_grad():
        wanted = theirs(ids[None]).logits[0]
        model = trainer.model
        found = model.logits(model.hidden(ids, torch.arange(6), causal_attend))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_only_the_newest_stay_and_leftovers_of_a_crash_go(tmp_path: Path) -> None:
    trainer = trained(tmp_path / "policy", 0)
    root = tmp_path / "saved"
    (root / ".new-step-00000009").mkdir(parents=True)
    for step in (1, 2, 10, 10):
        mark = Mark(step=step, version=step)
        checkpoint.save(root, trainer.model, tmp_path / "policy", {}, mark, 2)
    assert [p.name for p in root.iterdir() if p.name.startswith(".")] == []
    assert [checkpoint.load(p).mark.step for p in checkpoint.checkpoints(root)] == [2, 10]


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    tiny_policy(tmp_path)
    with pytest.raises(UserError, match="a checkpoint at"):
        checkpoint.load(tmp_path)


def test_a_torn_optimiser_file_is_named(tmp_path: Path) -> None:
    trainer = trained(tmp_path / "policy", 0)
    mark = Mark(step=1, version=1)
    folder = checkpoint.save(tmp_path / "saved", trainer.model, tmp_path / "policy", {}, mark, 1)
    (folder / checkpoint.OPTIMISER).write_bytes(b"torn")
    with pytest.raises(UserError, match="a checkpoint at"):
        checkpoint.load(folder)


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that refuses: any file that grows beyond size is an error."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_refuses_is_told_and_the_older_checkpoint_stays(tmp_path: Path) -> None:
    trainer = trained(tmp_path / "policy", 0)
    root = tmp_path / "saved"
    checkpoint.save(root, trainer.model, tmp_path / "policy", {}, Mark(step=1, version=1), 1)
    with files_of_at_most(1000), pytest.raises(LearnerError, match="free space, then --resume"):
        checkpoint.save(root, trainer.model, tmp_path / "policy", {}, Mark(step=2, version=2), 1)
    assert [checkpoint.load(p).mark.step for p in checkpoint.checkpoints(root)] == [1]


def test_another_models_optimiser_state_is_refused(tmp_path: Path) -> None:
    trainer = trained(tmp_path, 1)
    with pytest.raises(LearnerError, match="does not fit"):
        trainer.load_optimiser_state({"foreign.weight:exp_avg": torch.zeros(1)})
