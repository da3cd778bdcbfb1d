"""Executions of any recorded runs, to train on in a bench, and a model that knows their tokens.

Invariant: an execution is taken with the advantage that its run gave it; only where no run gave any,
executions get +1 and -1 in turns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opengyre.app.bench.small import small_qwen3
from opengyre.app.recorded import Recorded, config_of, open_run
from opengyre.app.sources import policy_folder
from opengyre.config.run import CellsSection
from opengyre.core.errors import UserError
from opengyre.learner.checkpoint import checkpoints
from opengyre.learner.policy import new_policy
from opengyre.model.folder import load_model
from opengyre.model.qwen3 import Qwen3
from opengyre.tree.record import ExecutionTree, full_length

RANDOM_HIDDEN = 64
"""Of the model for recordings whose own is not here: minutes on one core."""

ROUNDING = 1e-9
"""An advantage below it is that of the mean reward: no gradient."""


@dataclass(frozen=True)
class Case:
    """One execution to train on."""

    execution_id: str
    group_id: str
    tree: ExecutionTree
    advantage: float


@dataclass(frozen=True)
class Cases:
    """All of a bench."""

    runs: list[Path]
    told: list[Case]
    recorded_advantages: bool
    longest: int
    """Tokens of the longest context with its answer."""
    occurring: list[int]
    """Token ids that occur, ascending."""


def cases_of(places: Sequence[Path], most: int) -> Cases:
    """The newest `most` executions of each run. Raises UserError."""
    runs = run_folders(places)
    found = [pair for run in runs for pair in _cases(run, most)]
    told = [case for case, recorded in found if recorded and abs(case.advantage) > ROUNDING]
    recorded = bool(told)
    if not recorded:
        told = [
            Case(case.execution_id, case.group_id, case.tree, 1.0 - 2.0 * (number % 2))
            for number, (case, _) in enumerate(found)
        ]
    if not told:
        raise UserError(
            f"executions with trainable tokens in {', '.join(map(str, places))}",
            "none",
            "record a run first, with opengyre train or opengyre proxy",
        )
    calls = [call for case in told for call in case.tree.calls]
    return Cases(
        runs=runs,
        told=told,
        recorded_advantages=recorded,
        longest=max(map(full_length, calls)),
        occurring=sorted({i for call in calls for i in (*call.suffix_ids, *call.output_ids)}),
    )


def run_folders(places: Sequence[Path]) -> list[Path]:
    """Each place is a run folder, or holds some. Raises UserError."""
    found: list[Path] = []
    for place in places:
        inside = sorted({file.parent.resolve() for file in place.glob("**/run.sqlite")})
        if not inside:
            raise UserError(
                f"a run folder at {place}", "no run.sqlite in it or below", "pass a run's folder"
            )
        found += inside
    return found


def _cases(run: Path, most: int) -> Iterator[tuple[Case, bool]]:
    """With whether the run gave the advantage."""
    with open_run(run) as store:
        recorded = Recorded(store, config_of(run, store))
        chosen = [
            one
            for one in recorded.executions
            if one.record is None or one.record.split != "heldout"
        ]
        for execution in chosen[-most:]:
            tree = recorded.tree(execution)
            if tree.leaves():
                record, advantage = execution.record, execution.fate.advantage
                yield (
                    Case(
                        execution_id=f"{run.name}/{execution.execution_id}",
                        group_id=f"{run.name}/{record.group_id if record else ''}",
                        tree=tree,
                        advantage=advantage or 0.0,
                    ),
                    advantage is not None,
                )


def budget_of(cases: Cases) -> int:
    """Packed tokens of a micro-step: the first run's own, or what the longest context needs."""
    with open_run(cases.runs[0]) as store:
        config = config_of(cases.runs[0], store)
    return max(config.cells.token_budget if config else CellsSection().token_budget, cases.longest)


@dataclass(frozen=True)
class Policy:
    """What the cases are trained on."""

    model: Qwen3
    words: str
    """What it is."""
    rows: dict[int, int] | None
    """The model's own id of each token that occurs; None = the recorded ids."""

    def reads(self, token_ids: list[int]) -> list[int]:
        """The tokens as the model knows them."""
        return token_ids if self.rows is None else [self.rows[i] for i in token_ids]


def policy_for(cases: Cases, positions: int, scratch: Path) -> Policy:
    """The first run's newest policy where it is here and fits, else a small random one.

    The random one has rows for the tokens that occur and no more: with all of a large vocabulary the
    head of so small a model would take nearly all of its time.
    """
    own = _own_model(cases.runs[0])
    largest = cases.occurring[-1]
    if own is not None:
        shape = own.model.shape
        if shape.vocab_size > largest and shape.max_position_embeddings >= positions:
            return own
    count = len(cases.occurring)
    sizes = small_qwen3(RANDOM_HIDDEN, 2, positions, count)
    words = (
        f"a random Qwen3: 2 layers of {RANDOM_HIDDEN}, rows for the {count:,} tokens that occur "
        f"(ids up to {largest:,})"
    )
    model = new_policy(sizes, 0, scratch / "random")
    return Policy(model, words, {token: row for row, token in enumerate(cases.occurring)})


def _own_model(run: Path) -> Policy | None:
    """None where only the tokenizer is here: the model is served elsewhere."""
    found = checkpoints(run / "checkpoints")
    with open_run(run) as store:
        config = config_of(run, store)
    if not found and config is None:
        return None
    try:
        if not found:
            assert config is not None
            found = [policy_folder(config)]
        return Policy(load_model(found[-1]), f"weights of {found[-1].name}", None)
    except UserError:
        return None
