"""Everything a run can be told. A default lives here and nowhere else."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PolicyName = Literal["elastic", "forecast", "colocate", "async"]
FamilyName = Literal[
    "auto", "qwen3", "qwen3-coder", "qwen3.6", "qwen2.5", "glm-4.5", "deepseek-v3.1"
]


Folder = Annotated[Path, Field(strict=False)]
"""TOML has no paths: it is written as a string."""


class Section(BaseModel):
    """A table of the TOML file; unknown keys are errors, and so are values of another type: "yes" is
    no boolean, and "3" no number.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        strict=True,
    )


class RunSection(Section):
    """The run as a whole."""

    name: str = Field("run", pattern=r"^[a-z0-9][a-z0-9._-]*$")
    """Name of the run's folder."""
    folder: Folder = Path("runs")
    """Where run folders go."""
    seed: int = Field(0, ge=0)
    """Seeds task order, sampling, selection."""
    steps: int = Field(8, ge=1)
    """Optimiser steps of the whole run."""


class PolicySection(Section):
    """The model that is trained."""

    model: Folder
    """A transformers folder of a dense Qwen3 (config.json, *.safetensors, tokenizer.json), or
    "quickstart" for the bundled warm start."""
    family: FamilyName = "auto"
    """Chat template, tool-call and reasoning format; "auto" asks the model's folder."""
    tool_style: Literal["json", "signature"] = "json"
    """How tools are shown: the family's JSON schemas, or one-line signatures for tiny models."""
    context_tokens: int = Field(4096, ge=64)
    """Longest prompt + output of a call."""
    max_new_tokens: int = Field(1024, ge=1)
    """Longest answer of a call."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature in training."""


class TasksSection(Section):
    """What is worked on."""

    train: Folder
    """Folder of task folders (Harbor format), or "bundled:FAMILY" for generated ones."""
    heldout: Folder
    """Likewise, disjoint from train."""
    train_count: int = Field(256, ge=1)
    """How many bundled training tasks to generate."""
    heldout_count: int = Field(128, ge=1)
    """How many bundled held-out tasks to generate."""


class HarnessSection(Section):
    """The agent program."""

    name: Literal["claude-code", "codex", "qwen-code", "opencode", "mini-swe-agent", "command"] = (
        "claude-code"
    )
    """Which adapter."""
    packages: Folder | None = None
    """Folder that npm installed the program in (the one with node_modules), or pip, for
    mini-swe-agent; absent = a Python package that brings it, or PATH."""
    command: list[str] = []
    """For name = "command": the program and its arguments; {instruction}, {base_url}, {key}, {model}
    are filled in."""
    args: list[str] = []
    """Extra arguments for the program."""
    env: dict[str, str] = {}
    """Extra environment for the program."""
    timeout_s: float = Field(3600.0, gt=0)
    """Limit for the agent when the task sets none; its work is then scored as it stands."""
    overall_timeout_s: float = Field(7200.0, gt=0)
    """Outer limit of an execution, set-up and evaluation included; past it, it is dropped."""
    attempts: int = Field(2, ge=1)
    """Tries of an execution that fails through no fault of the agent."""
    train_unknown: bool = False
    """Train calls whose part in the execution no rule knows as if they were the agent's own."""


class SandboxSection(Section):
    """Where agents and evaluators run."""

    kind: Literal["bubblewrap", "none"] = "bubblewrap"
    """"none" gives the agent your machine: only for programs that you trust."""
    memory_mb: int = Field(4096, ge=64)
    """Memory limit of one sandbox."""
    processes: int = Field(256, ge=8)
    """Process limit of one sandbox."""
    workspace_mb: int = Field(1024, ge=1)
    """Largest workspace that is preserved."""


class CellsSection(Section):
    """The machine's share for models."""

    count: int = Field(2, ge=2)
    """K: cell 0 is the core, the others are satellites."""
    capacity: int = Field(4, ge=1)
    """Executions that one cell serves at a time."""
    threads: int = Field(1, ge=1)
    """Torch threads of a cell."""
    kv_tokens: int = Field(32768, ge=256)
    """Tokens that a cell's KV pool holds."""
    block_tokens: int = Field(16, ge=1)
    """Tokens in a KV block."""
    token_budget: int = Field(8192, ge=64)
    """Packed tokens of a micro-step. What is sampled deeper in a context is not trained, and counted."""
    training_cells: int = Field(1, ge=1)
    """For schedule.policy = "async": how many cells always train."""


class ScheduleSection(Section):
    """Who rolls out, who trains, when."""

    policy: PolicyName = "elastic"
    """Scheduling policy."""
    group_size: int = Field(8, ge=2)
    """N: executions of a task in a group."""
    groups_per_step: int = Field(6, ge=1)
    """B: groups that one optimiser step consumes."""
    steps_per_burst: int = Field(2, ge=1)
    """mu: steps between weight publications."""
    staleness_steps: int = Field(1, ge=0)
    """phi: groups outstanding beyond a burst's own, in steps."""


class LearnerSection(Section):
    """How samples become weights."""

    learning_rate: float = Field(1e-6, gt=0)
    """Of AdamW, at the first step."""
    final_learning_rate_share: float = Field(1.0, ge=0, le=1)
    """Share of learning_rate at the last step; linear between."""
    clip_low: float = Field(3e-4, gt=0)
    """GSPO's lower clip range."""
    clip_high: float = Field(4e-4, gt=0)
    """GSPO's upper clip range."""
    weight_decay: float = Field(0.0, ge=0)
    """Of AdamW."""
    gradient_clip: float = Field(1.0, gt=0)
    """Largest global gradient norm."""
    max_trajectories: int = Field(5, ge=0)
    """J_max: trajectories of an execution; 0 = as many as it takes to train every token."""
    normalise_advantage: bool = True
    """Divide by the group's standard deviation."""

    @property
    def j_max(self) -> int | None:
        """max_trajectories as selection takes it: None = unlimited."""
        return self.max_trajectories or None


class EvalSection(Section):
    """Held-out evaluation."""

    before: bool = True
    """Evaluate before the first step."""
    after: bool = True
    """Evaluate after the last step."""
    samples: int = Field(1, ge=1)
    """Executions per held-out task."""
    greedy: bool = False
    """Also evaluate greedily."""
    temperature: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Of sampling in evaluations; absent = policy.temperature."""


class ProxySection(Section):
    """The door that harnesses call."""

    port: int = Field(0, ge=0, le=65535)
    """TCP port on 127.0.0.1; 0 = any free one."""
    max_body_mb: int = Field(64, ge=1)
    """Largest request body."""


class RunConfig(Section):
    """A whole configuration file."""

    run: RunSection = RunSection()
    policy: PolicySection
    tasks: TasksSection
    harness: HarnessSection = HarnessSection()
    sandbox: SandboxSection = SandboxSection()
    cells: CellsSection = CellsSection()
    schedule: ScheduleSection = ScheduleSection()
    learner: LearnerSection = LearnerSection()
    eval: EvalSection = EvalSection()
    proxy: ProxySection = ProxySection()

    @model_validator(mode="after")
    def _fits_together(self) -> "RunConfig":
        if self.policy.max_new_tokens >= self.policy.context_tokens:
            raise ValueError(
                f"policy.max_new_tokens = {self.policy.max_new_tokens} leaves no room in "
                f"policy.context_tokens = {self.policy.context_tokens}"
            )
        if self.schedule.policy == "async" and self.cells.training_cells >= self.cells.count:
            raise ValueError(
                f"cells.training_cells = {self.cells.training_cells} leaves no rollout cell of "
                f"cells.count = {self.cells.count}; the largest is {self.cells.count - 1}"
            )
        if self.cells.kv_tokens < self.policy.context_tokens:
            raise ValueError(
                f"cells.kv_tokens = {self.cells.kv_tokens} cannot hold one call of "
                f"policy.context_tokens = {self.policy.context_tokens}"
            )
        if self.harness.name == "command" and not self.harness.command:
            raise ValueError('harness.name = "command" needs harness.command = ["PROGRAM", …]')
        if self.harness.name != "command" and self.harness.command:
            raise ValueError(
                f'harness.command is for harness.name = "command", not for "{self.harness.name}"'
            )
        if self.harness.name == "command" and self.harness.packages is not None:
            raise ValueError('harness.packages says nothing to harness.name = "command"')
        if self.harness.overall_timeout_s < self.harness.timeout_s:
            raise ValueError("harness.overall_timeout_s is below harness.timeout_s")
        if self.schedule.steps_per_burst > self.run.steps:
            raise ValueError(
                f"schedule.steps_per_burst = {self.schedule.steps_per_burst} is more than "
                f"run.steps = {self.run.steps}"
            )
        return self
