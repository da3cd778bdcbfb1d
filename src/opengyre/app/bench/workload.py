"""What every policy of the bench works on: tasks that wait, a fresh policy, one configuration.

Invariant: tasks, waits, weights and sampling seeds follow from the workload alone, and every answer
has the same length; policies differ in nothing but scheduling.
"""

import json
import math
import random
import string
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from opengyre.app.bench import agent
from opengyre.app.bench.small import small_qwen3
from opengyre.config.load import parse_config
from opengyre.config.run import PolicyName, RunConfig
from opengyre.learner.policy import new_policy
from opengyre.model.folder import save_model
from opengyre.model.qwen3 import Qwen3

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Qwen3's markup, as far as a conversation without tools needs it."""
LETTERS = "".join(c for c in string.printable if c.isprintable()) + "\n"
"""One token a character: lengths in tokens are lengths in characters."""
LEAN = 6.0
"""How far all ordinary tokens lie in one direction in which the special ones do not lie at all: a
random policy then ends an answer by itself about once in a million tokens (measured)."""

ASK = "Mend the program. Say what to change, then wait for the build and read its log."
LOG_LINE = "compiling unit %02d of the program ... done\n"
LONGEST_LINE = 50


@dataclass(frozen=True)
class Workload:
    """The defaults are what docs/performance.md reports."""

    steps: int = 12
    """Optimiser steps."""
    cells: int = 2
    seed: int = 0
    group_size: int = 8
    groups_per_step: int = 2
    steps_per_burst: int = 3
    staleness_steps: int = 1
    """(1 + 3) * 2 * 8 = 64 executions are outstanding at the start of a burst."""
    capacity: int = 32
    """Of a cell, in executions: two cells can serve all that is outstanding, one cell cannot."""
    turns: int = 6
    """Model calls of an execution, a wait after each."""
    answer_tokens: int = 16
    log_chars: int = 30
    """What a tool prints. Longer logs shift model time from rollout to training: with these two, half
    of it is training, where a 1:1 split is at its best."""
    wait_s: float = 5.0
    """Tool time of an execution, on average."""
    spread: float = 0.42
    """Standard deviation of the logarithm of an execution's tool time within its group: with it the
    slowest of a group takes about 1.5 times the mean, model time included."""
    task_spread: float = 0.25
    """The same between tasks. Tasks of one length would end together, which helps no fixed split."""
    hidden: int = 192
    layers: int = 4
    """1.8 million parameters."""
    sandbox: str = "bubblewrap"
    learner: dict[str, float] = field(
        default_factory=lambda: {"learning_rate": 1e-4, "clip_low": 0.005, "clip_high": 0.01}
    )

    @property
    def groups(self) -> int:
        return self.steps * self.groups_per_step

    @property
    def staleness_bound(self) -> int:
        """In versions; the scheduler keeps it under every policy."""
        return -(-self.staleness_steps // self.steps_per_burst) + 1

    @property
    def context_tokens(self) -> int:
        """Room for the whole conversation, markup included."""
        turn = self.answer_tokens + self.log_chars + LONGEST_LINE
        return len(ASK) + LONGEST_LINE + (self.turns + 1) * turn


def waits_of_group(workload: Workload, index: int) -> list[list[float]]:
    """Seconds of each wait of each member: quantiles of a log-normal, shuffled, cut at random."""
    rng = random.Random(f"{workload.seed}/{index}")
    size = workload.group_size
    places = [NormalDist().inv_cdf((i + 0.5) / size) for i in range(size)]
    factors = [math.exp(workload.spread * z) for z in rng.sample(places, size)]
    task = math.exp(rng.gauss(0.0, workload.task_spread) - workload.task_spread**2 / 2)
    unit = workload.wait_s * task / fmean(factors)
    return [_cut(unit * factor, workload.turns, rng) for factor in factors]


def _cut(total: float, parts: int, rng: random.Random) -> list[float]:
    shares = [rng.uniform(0.2, 1.0) for _ in range(parts)]
    return [total * share / sum(shares) for share in shares]


def write_workload(workload: Workload, folder: Path) -> None:
    """Policy and tasks, below `folder`."""
    write_policy(workload, folder / "policy")
    for index in range(workload.groups):
        _write_task(workload, index, folder / "tasks" / f"build-{index:03d}")
    _write_task(workload, workload.groups, folder / "heldout" / "build-heldout")


def write_policy(workload: Workload, folder: Path) -> Qwen3:
    """A random policy over single characters that says a full answer each time."""
    vocabulary = _vocabulary()
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.save(str(folder / "tokenizer.json"))
    model = new_policy(_shape(workload, len(vocabulary)), workload.seed, folder)
    embedding = dict(model.named_weights())["model.embed_tokens.weight"]
    with torch.no_grad():
        embedding[:, 0] = LEAN
        embedding[[vocabulary[token] for token in SPECIAL], 0] = 0.0
    save_model(model, folder, folder)
    return model


def _vocabulary() -> dict[str, int]:
    pieces = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(LETTERS)
    letters = {letter for word, _ in pieces for letter in word}
    return {token: i for i, token in enumerate([*SPECIAL, *sorted(letters)])}


def _shape(workload: Workload, vocab_size: int) -> dict[str, object]:
    positions = 2 * workload.context_tokens
    sizes = small_qwen3(workload.hidden, workload.layers, positions, vocab_size)
    return sizes | {"eos_token_id": 2, "pad_token_id": 0}


TASK_TOML = """\
schema_version = "1.4"

[metadata]
family = "build"
reward_range = [0.0, 1.0]

[environment]
network_mode = "no-network"
"""

TEST_SH = """\
#!/bin/bash
# The share of lower-case letters: spread within a group, and something to learn.
good=$(tr -cd a-z < answer.txt | wc -c)
share=$((good * 1000000 / {expected}))
printf '%d.%06d\\n' $((share / 1000000)) $((share % 1000000)) > "${{VERIFIER_LOGS}}/reward.txt"
"""


def _write_task(workload: Workload, index: int, folder: Path) -> None:
    log = "".join(LOG_LINE % i for i in range(workload.log_chars // len(LOG_LINE % 0) + 1))
    plan = {
        "ask": f"{ASK} Program {index}.",
        "tool_output": log[: workload.log_chars],
        "waits": waits_of_group(workload, index),
    }
    texts = {
        "task.toml": TASK_TOML,
        "instruction.md": f"{ASK} Program {index}.\n",
        "environment/Dockerfile": "FROM debian:stable-slim\nWORKDIR /app\nCOPY files/ ./\n",
        "environment/files/agent.py": Path(agent.__file__).read_text(),
        f"environment/files/{agent.PLAN}": json.dumps(plan),
        "tests/test.sh": TEST_SH.format(expected=workload.turns * workload.answer_tokens),
    }
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def configuration(
    workload: Workload, folder: Path, policy: PolicyName, training_cells: int
) -> RunConfig:
    """A run on the workload in `folder`; only the two last arguments differ between contenders."""
    context = workload.context_tokens
    sections: dict[str, Any] = {
        "run": {"name": policy, "seed": workload.seed, "steps": workload.steps},
        "policy": {
            "model": folder / "policy",
            "context_tokens": context,
            "max_new_tokens": workload.answer_tokens,
        },
        "tasks": {"train": folder / "tasks", "heldout": folder / "heldout"},
        "harness": {
            "name": "command",
            "command": ["env", "python3", "-I", "-S", "agent.py", "{base_url}", "{key}"],
        },
        "sandbox": {"kind": workload.sandbox},
        "cells": {
            "count": workload.cells,
            "capacity": workload.capacity,
            "kv_tokens": workload.capacity * context,
            "token_budget": context * 3 // 2,  # two executions or more
            "training_cells": training_cells,
        },
        "schedule": {
            "policy": policy,
            "group_size": workload.group_size,
            "groups_per_step": workload.groups_per_step,
            "steps_per_burst": workload.steps_per_burst,
            "staleness_steps": workload.staleness_steps,
        },
        "learner": workload.learner,
        "eval": {"before": False, "after": False},
    }
    return parse_config(sections, "a bench that can run")
