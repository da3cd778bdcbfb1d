"""Small policies, trajectories and micro-steps for the learner's tests."""

import random
from collections.abc import Sequence
from pathlib import Path

import torch

from opengyre.config.run import LearnerSection
from opengyre.core.reasons import Role
from opengyre.core.records import ExecutionSample, MicroStep, Trajectory
from opengyre.learner.policy import new_policy
from opengyre.model.qwen3 import Qwen3

VOCAB = 13


def tiny_config(vocab: int = VOCAB, *, tied: bool = True) -> dict[str, object]:
    return {
        "vocab_size": vocab,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
        "eos_token_id": 0,
    }


def learner(**values: float) -> LearnerSection:
    return LearnerSection.model_validate(values)


def tiny_policy(folder: Path, seed: int = 0, dtype: torch.dtype = torch.float64) -> Qwen3:
    return new_policy(tiny_config(), seed, folder).to(dtype)


def random_tree(draw: random.Random, leaves: int, depth: int) -> list[list[int]]:
    """Sequences, each of which follows an earlier one for a while."""
    sequences: list[list[int]] = []
    for _ in range(leaves):
        start: list[int] = []
        if sequences and draw.random() < 0.85:
            known = draw.choice(sequences)
            start = known[: draw.randint(0, len(known))]
        length = draw.randint(1 if start else 2, depth)
        sequences.append(start + [draw.randrange(VOCAB) for _ in range(length)])
    return sequences


def trajectory(ids: Sequence[int], owned: Sequence[int], draw: random.Random) -> Trajectory:
    return Trajectory(
        leaf_call_id="leaf",
        role=Role.MAIN,
        token_ids=list(ids),
        owned=list(owned),
        behaviour_logprobs=[-3.0 + 0.3 * draw.gauss(0, 1) for _ in owned],
    )


def random_sample(draw: random.Random, name: str = "e", leaves: int = 3) -> ExecutionSample:
    """Tokens of a shared prefix are owned by the first trajectory that has them, or by none."""
    taken: set[tuple[int, ...]] = set()
    trajectories = []
    for ids in random_tree(draw, leaves, 9):
        free = [i for i in range(1, len(ids)) if tuple(ids[: i + 1]) not in taken]
        owned = [i for i in free if draw.random() < 0.7]
        taken |= {tuple(ids[: i + 1]) for i in owned}
        trajectories.append(trajectory(ids, owned, draw))
    return sample(name, trajectories, draw.gauss(0, 1))


def sample(name: str, trajectories: list[Trajectory], advantage: float) -> ExecutionSample:
    return ExecutionSample(
        execution_id=name,
        group_id="g",
        advantage=advantage,
        reward=0.0,
        trajectories=trajectories,
        oldest_version=0,
    )


def micro(samples: Sequence[ExecutionSample], name: str = "m") -> MicroStep:
    expanded = sum(len(t.token_ids) for s in samples for t in s.trajectories)
    return MicroStep(
        micro_id=name,
        step=0,
        samples=list(samples),
        packed_tokens=expanded,
        expanded_tokens=expanded,
    )


ROUNDING = 1e-14
"""Norm of a tensor that sums of numbers near 1 in float64 give where they cancel."""


def relative_error(found: torch.Tensor, reference: torch.Tensor) -> float:
    """In 2-norms; a reference that is nothing but rounding (a gradient that is 0 by its formula) counts
    as 0, and then the error is absolute."""
    norm = torch.linalg.vector_norm(reference)
    error = torch.linalg.vector_norm(found - reference)
    return float(error / norm) if norm > ROUNDING else float(error)
