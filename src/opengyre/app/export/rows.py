"""One execution's selection as rows for the Parquet file."""

from collections.abc import Iterator

from opengyre.app.recorded import Execution
from opengyre.core.records import Trajectory
from opengyre.store.parquet import Row
from opengyre.tree.record import ExecutionTree, prompt_length
from opengyre.tree.select import Selection

NO_VERSION = -1
"""Of a token that is no target."""


def rows_of(
    run: str, model: str | None, execution: Execution, tree: ExecutionTree, selection: Selection
) -> Iterator[Row]:
    """In order of drawing; none when nothing of a trainable role was sampled."""
    record, fate = execution.record, execution.fate
    verdict = record.verdict if record else None
    for number, chosen in enumerate(selection.trajectories):
        mask, logprobs, versions = _aligned(tree, chosen)
        yield Row(
            run=run,
            execution_id=execution.execution_id,
            group_id=record.group_id if record else None,
            task_id=record.task_id if record else None,
            harness=record.harness if record else None,
            split=record.split if record else None,
            attempt=record.attempt if record else None,
            model=model,
            verdict=verdict.kind.value if verdict else None,
            ending=verdict.ending.value if verdict else None,
            reward=verdict.reward if verdict else None,
            passed=verdict.passed if verdict else None,
            advantage=fate.advantage,
            trained=fate.why_untrained is None,
            why_untrained=fate.why_untrained,
            step=fate.step,
            trajectory=number,
            trajectories=len(selection.trajectories),
            execution_tokens=selection.ledger.owned,
            oldest_version=selection.oldest_version or 0,
            leaf_call_id=chosen.leaf_call_id,
            role=chosen.role.value,
            token_ids=chosen.token_ids,
            mask=mask,
            logprobs=logprobs,
            versions=versions,
        )


def _aligned(tree: ExecutionTree, chosen: Trajectory) -> tuple[list[bool], list[float], list[int]]:
    """Masks, log-probabilities and versions, one of each per token."""
    length = len(chosen.token_ids)
    mask, logprobs, versions = [False] * length, [0.0] * length, [NO_VERSION] * length
    sampled = _versions(tree, chosen)
    for position, logprob in zip(chosen.owned, chosen.behaviour_logprobs, strict=True):
        mask[position] = True
        logprobs[position] = logprob
        versions[position] = sampled[position]
    return mask, logprobs, versions


def _versions(tree: ExecutionTree, chosen: Trajectory) -> dict[int, int]:
    """By position in the path, of every sampled token on it."""
    found = {}
    for stretch in tree.path(chosen.leaf_call_id):
        first = prompt_length(stretch.call)
        for span in stretch.call.versions:
            end = min(first + span.end, stretch.end)
            found.update(dict.fromkeys(range(first + span.start, end), span.version))
    return found
