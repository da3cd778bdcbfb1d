"""J_max ablated: the same recorded executions with one, five and all trajectories.

Invariant: choices differ in J_max alone: same executions, same draws (a smaller J_max takes the first
trajectories of a larger), same weights, same advantages.
"""

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from msgspec import Struct
from msgspec.structs import replace

from opengyre.app.bench.recordings import Case, Cases, Policy, budget_of, cases_of, policy_for
from opengyre.core.fakes import CountingIds
from opengyre.core.records import ExecutionSample, MicroStep, Trajectory
from opengyre.learner.ablate import Measured, ablate
from opengyre.tree.ledger import Ledger
from opengyre.tree.pack import micro_steps
from opengyre.tree.roles import trains
from opengyre.tree.select import select

UNLIMITED = "unlimited"
CHOICES: dict[str, int | None] = {"1": 1, "5": 5, UNLIMITED: None}
"""The published default between its extremes."""


class JmaxChoice(Struct, kw_only=True):
    """One J_max. Ratios are over unlimited. Made by measure_jmax; read by table and JSON file."""

    j_max: str
    trajectories: int
    token_share: float
    """Of the sampled tokens of trained roles."""
    trained_tokens: int
    cut_tokens: int
    packed_tokens: int
    seconds: float
    """Forward and backward of all micro-steps, the fastest of the repeats."""
    time_ratio: float
    gradient_norm: float
    """Of the mean gradient over executions."""
    gradient_norm_ratio: float
    cosine: float
    """Between its gradient and that of unlimited; averaged over draws, as are all figures."""
    cosine_worst: float
    """Of the draws."""


class JmaxResult(Struct, kw_only=True):
    """The ablation."""

    choices: list[JmaxChoice]
    runs: list[str]
    model: str
    advantages: str
    executions: int
    branched: int
    """Executions with more than one leaf."""
    leaves: int
    sampled_tokens: int
    """By calls of trained roles."""
    token_budget: int
    truncated_tokens: int
    draws: int
    repeats: int
    micro_steps: int


@dataclass(frozen=True)
class JmaxSettings:
    """Options of the bench."""

    executions: int = 32
    """The newest so many of each run."""
    draws: int = 1
    repeats: int = 3
    seed: int = 0
    token_budget: int | None = None
    """None: the first run's own, or as much as the longest context needs."""


def measure_jmax(
    places: Sequence[Path], settings: JmaxSettings, now: Callable[[], float]
) -> JmaxResult:
    """Ablate on the runs in or below these folders. Raises UserError. now: seconds of any clock."""
    cases = cases_of(places, settings.executions)
    budget = settings.token_budget or budget_of(cases)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="opengyre-jmax-") as scratch:
        policy = policy_for(cases, min(budget, cases.longest), Path(scratch))
        draws = [
            _one_draw(
                policy, _chosen(cases, policy, f"{settings.seed}/{draw}", budget), settings, now
            )
            for draw in range(settings.draws)
        ]
    leaves = [len(case.tree.leaves()) for case in cases.told]
    whole = draws[0].ledgers[UNLIMITED]
    return JmaxResult(
        choices=[_choice(j_max, draws, cases) for j_max in CHOICES],
        runs=[run.name for run in cases.runs],
        model=policy.words,
        advantages="recorded" if cases.recorded_advantages else "+1 and -1 in turns",
        executions=len(leaves),
        branched=sum(count > 1 for count in leaves),
        leaves=sum(leaves),
        sampled_tokens=_trainable(cases),
        token_budget=budget,
        truncated_tokens=sum(whole.truncated.values()),
        draws=settings.draws,
        repeats=settings.repeats,
        micro_steps=len(draws[0].micros[UNLIMITED]),
    )


@dataclass(frozen=True)
class _Chosen:
    """By J_max."""

    micros: dict[str, list[MicroStep]]
    ledgers: dict[str, Ledger]


@dataclass(frozen=True)
class _Draw(_Chosen):
    measured: dict[str, Measured]


def _chosen(cases: Cases, policy: Policy, seed: str, budget: int) -> _Chosen:
    chosen = _Chosen({}, {})
    for name, j_max in CHOICES.items():
        ledger, samples = Ledger(), []
        for case in cases.told:
            draws = random.Random(f"{seed}/{case.execution_id}")
            selection = select(case.tree, j_max, draws, budget)
            ledger.add(selection.ledger)
            if selection.oldest_version is not None:
                samples.append(_sample(case, policy, selection.trajectories))
        ledger.check()
        chosen.ledgers[name] = ledger
        chosen.micros[name] = micro_steps(samples, budget, 0, CountingIds())
    return chosen


def _one_draw(
    policy: Policy, chosen: _Chosen, settings: JmaxSettings, now: Callable[[], float]
) -> _Draw:
    measured = ablate(policy.model, chosen.micros, UNLIMITED, now, settings.repeats)
    return _Draw(chosen.micros, chosen.ledgers, measured)


def _sample(case: Case, policy: Policy, trajectories: list[Trajectory]) -> ExecutionSample:
    return ExecutionSample(
        execution_id=case.execution_id,
        group_id=case.group_id,
        advantage=case.advantage,
        reward=0.0,
        trajectories=[replace(t, token_ids=policy.reads(t.token_ids)) for t in trajectories],
        oldest_version=0,
        owned_tokens=sum(len(chosen.owned) for chosen in trajectories),
    )


def _trainable(cases: Cases) -> int:
    calls = [call for case in cases.told for call in case.tree.calls]
    return sum(len(call.output_ids) for call in calls if trains(call.role))


def _choice(name: str, draws: Sequence[_Draw], cases: Cases) -> JmaxChoice:
    """Means over draws."""
    measured = [draw.measured[name] for draw in draws]
    whole = [draw.measured[UNLIMITED] for draw in draws]
    owned = fmean(draw.ledgers[name].owned for draw in draws)
    seconds = fmean(one.seconds for one in measured)
    norm = fmean(one.gradient_norm for one in measured) / len(cases.told)
    return JmaxChoice(
        j_max=name,
        trajectories=round(fmean(one.stats.trajectories for one in measured)),
        token_share=owned / max(1, _trainable(cases)),
        trained_tokens=round(owned),
        cut_tokens=round(fmean(draw.ledgers[name].cut for draw in draws)),
        packed_tokens=round(fmean(one.stats.packed_tokens for one in measured)),
        seconds=seconds,
        time_ratio=seconds / fmean(one.seconds for one in whole),
        gradient_norm=norm,
        gradient_norm_ratio=norm * len(cases.told) / fmean(one.gradient_norm for one in whole),
        cosine=fmean(one.cosine for one in measured),
        cosine_worst=min(one.cosine for one in measured),
    )
