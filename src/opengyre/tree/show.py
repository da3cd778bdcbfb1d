"""An execution's tree as lines, for a terminal or a report.

Invariant: every call is in exactly one branch, and a branch stands below the one it parted from.
A branch is a run of calls of one role, each of which extends the one before through its whole output.
"""

from dataclasses import dataclass

from opengyre.core.reasons import ForkReason, Role
from opengyre.core.records import Call
from opengyre.tree.ledger import Ledger
from opengyre.tree.record import ExecutionTree, full_length, prompt_length
from opengyre.tree.roles import trains
from opengyre.tree.select import Selection

TRAINED, SHARED, CUT = "trained", "shared", "cut by J_max"
"""What can become of tokens, beside the reasons for which they are excluded or truncated."""


@dataclass(frozen=True)
class BranchLine:
    """One branch. Counts of tokens are sums over its calls, context excepted."""

    depth: int
    """0 for a conversation of its own."""
    first_call_id: str
    call_id: str
    """The last call."""
    call_ids: list[str]
    """All of them, in order."""
    calls: int
    role: Role
    why: str
    """Of the role, as the first call gave it."""
    fork: ForkReason | None
    """Why the branch started."""
    context_tokens: int
    """Prompt of the last call."""
    sampled_tokens: int
    selected: bool
    """Whether a trajectory ends here. Without a selection: False, and nothing owned or cut."""
    owned_tokens: int
    cut_tokens: int
    truncated_tokens: int


def describe(tree: ExecutionTree, selection: Selection | None = None) -> list[BranchLine]:
    """Branches depth-first, siblings in order of recording."""
    branches, below = _branches(tree)
    lines: list[BranchLine] = []
    waiting = [(0, first) for first in reversed(below[None])]
    while waiting:
        depth, first = waiting.pop()
        lines.append(_line(depth, branches[first], selection))
        waiting.extend((depth + 1, child) for child in reversed(below[first]))
    return lines


def _branches(tree: ExecutionTree) -> tuple[dict[str, list[Call]], dict[str | None, list[str]]]:
    """Branches by their first call's id, and the first calls below each; below None the roots."""
    branches: dict[str, list[Call]] = {}
    below: dict[str | None, list[str]] = {None: []}
    branch_of: dict[str, str] = {}
    for call in tree.calls:
        above = branch_of[call.parent_id] if call.parent_id is not None else None
        if above is not None and _goes_on(branches[above][-1], call):
            branches[above].append(call)
            branch_of[call.call_id] = above
        else:
            branches[call.call_id] = [call]
            branch_of[call.call_id] = call.call_id
            below[above].append(call.call_id)
            below[call.call_id] = []
    return branches, below


def _goes_on(last: Call, call: Call) -> bool:
    whole = call.parent_id == last.call_id and call.reused == full_length(last)
    return whole and call.role is last.role


def _line(depth: int, branch: list[Call], selection: Selection | None) -> BranchLine:
    first, last = branch[0], branch[-1]
    sampled = sum(len(call.output_ids) for call in branch)
    owned, cut, beyond, selected = 0, 0, 0, False
    if selection is not None:
        owned = sum(selection.owned_by_call.get(call.call_id, 0) for call in branch)
        ends = {trajectory.leaf_call_id for trajectory in selection.trajectories}
        selected = any(call.call_id in ends for call in branch)
        beyond = sum(selection.truncated_by_call.get(call.call_id, 0) for call in branch)
        cut = sampled - owned - beyond if trains(first.role) else 0
    return BranchLine(
        depth=depth,
        first_call_id=first.call_id,
        call_id=last.call_id,
        call_ids=[call.call_id for call in branch],
        calls=len(branch),
        role=first.role,
        why=first.role_why,
        fork=first.fork,
        context_tokens=prompt_length(last),
        sampled_tokens=sampled,
        selected=selected,
        owned_tokens=owned,
        cut_tokens=cut,
        truncated_tokens=beyond,
    )


def fates_of(ledger: Ledger) -> dict[str, int]:
    """Tokens by what became of them; only what there is."""
    fates = {TRAINED: ledger.trained, SHARED: ledger.shared, CUT: ledger.cut}
    fates |= {f"excluded: {reason}": n for reason, n in sorted(ledger.excluded.items())}
    fates |= {f"truncated: {reason}": n for reason, n in sorted(ledger.truncated.items())}
    return {fate: tokens for fate, tokens in fates.items() if tokens}
