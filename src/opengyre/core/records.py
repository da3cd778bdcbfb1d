"""Records that cross rooms or processes. Each message is stored once: a call holds only its new tokens."""

from collections.abc import Sequence

from msgspec import Struct

from opengyre.core.reasons import Ending, FinishReason, ForkReason, Role, VerdictKind


class Sampling(Struct, frozen=True, kw_only=True):
    """How to sample. Made by proxy; read by engine.

    Token i of an answer is drawn with a counter-based number from (seed, i), so that a call which
    moves to another cell draws the same tokens.
    """

    max_new_tokens: int
    stop_ids: list[int]
    seed: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 = off."""


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """One generation. Made by proxy; read by cluster and engine."""

    request_id: str
    execution_id: str
    prompt_ids: Sequence[int]
    """TokenIds from the proxy; a list once it has crossed a process."""
    sampling: Sampling
    first_index: int = 0
    """Index of the first token to draw: > 0 when a call goes on at another cell, its earlier
    output then being the end of prompt_ids."""


class TokenChunk(Struct, frozen=True, kw_only=True):
    """Tokens just generated (at least one, or a finish). Made by engine; read by cluster and proxy."""

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    """Natural log of the probability of each token under the sampling distribution."""
    version: int
    """Weight version that computed these tokens."""
    finish: FinishReason | None = None
    moves_with_kv: int = 0
    moves_recomputed: int = 0
    """Moves of the call to another cell since the chunk before. Set by cluster."""
    cells: list[int] = []
    """Cells that the call was given to since the chunk before, in order. Set by cluster; empty where
    there are none."""


class VersionSpan(Struct, frozen=True):
    """Output tokens [start, end) were computed by one weight version."""

    version: int
    start: int
    end: int


class Call(Struct, frozen=True, kw_only=True):
    """One model request and its exact answer. Made by proxy; read by store and tree.

    Invariant: prompt = (parent's prompt + parent's output)[:reused] + suffix_ids.
    """

    call_id: str
    execution_id: str
    index: int
    """Order of recording within the execution, from 0."""
    dialect: str
    parent_id: str | None
    reused: int
    suffix_ids: list[int]
    output_ids: list[int]
    output_logprobs: list[float]
    versions: list[VersionSpan]
    finish: FinishReason
    role: Role
    role_why: str
    fork: ForkReason | None
    started_at: float
    ended_at: float
    """Seconds of the run's clock."""
    moves_with_kv: int = 0
    moves_recomputed: int = 0
    cells: list[int] = []
    """Cells that it was given to, in order: it began on the first and was finished by the last. Empty
    where there are none, and in records of older versions."""

    @property
    def cell(self) -> int | None:
        """The one that finished it, if that is recorded."""
        return self.cells[-1] if self.cells else None


class Verdict(Struct, frozen=True, kw_only=True):
    """How an execution ended and whether its reward may be trained on. Made by tasks; read by all."""

    kind: VerdictKind
    ending: Ending
    reward: float | None = None
    """Finite and inside the task's range when kind is scored, else None."""
    passed: bool | None = None
    detail: str = ""
    parts: dict[str, float] = {}


class ExecutionRecord(Struct, frozen=True, kw_only=True):
    """One run of one harness on one task. Made by app; read by store and report."""

    execution_id: str
    group_id: str
    task_id: str
    harness: str
    split: str
    """"train" or "heldout"."""
    version_dispatched: int
    attempt: int
    """From 1; every try of a group's member has a record of its own."""
    dispatched_at: float
    started_at: float
    ended_at: float
    verdict: Verdict
    member: str = ""
    """The group's member that this is a try of."""
    final: bool = True
    """False for a try that was repeated."""


class Trajectory(Struct, frozen=True, kw_only=True):
    """One selected root-to-leaf path. Made by tree; read by learner."""

    leaf_call_id: str
    role: Role
    token_ids: list[int]
    owned: list[int]
    """Ascending indices into token_ids of the sampled tokens that this path trains (never 0)."""
    behaviour_logprobs: list[float]
    """Recorded at sampling; one per entry of owned."""


class ExecutionSample(Struct, frozen=True, kw_only=True):
    """What one scored execution gives to the learner. Made by tree; read by learner."""

    execution_id: str
    group_id: str
    advantage: float
    reward: float
    trajectories: list[Trajectory]
    oldest_version: int
    """Lowest weight version that sampled an owned token."""
    owned_tokens: int = 0
    """Owned tokens of the whole execution, its trajectories in other micro-steps included; 0 = those
    of `trajectories`."""


class MicroStep(Struct, frozen=True, kw_only=True):
    """One packed forward-backward. Made by tree (pack); read by cluster and learner."""

    micro_id: str
    step: int
    samples: list[ExecutionSample]
    packed_tokens: int
    """Tokens computed with shared prefixes counted once."""
    expanded_tokens: int
    """Tokens that separate sequences would compute."""
