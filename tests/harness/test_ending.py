"""How an execution's end is named: our faults are never the agent's."""

from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.reasons import Ending
from opengyre.harness.base import HarnessOutcome
from opengyre.harness.run import ending_of

SCORED = {
    Ending.FINISHED,
    Ending.NONZERO_EXIT,
    Ending.HARNESS_TIMEOUT,
    Ending.CONTEXT_LIMIT,
}


def outcome(exit_code: int | None = 0, **more: bool) -> HarnessOutcome:
    flags = {"timed_out": exit_code is None, "oom": False, "started": True, **more}
    return HarnessOutcome(exit_code=exit_code, seconds=1.0, stdout_tail="", stderr_tail="", **flags)


def named(
    made: HarnessOutcome,
    replies: int = 1,
    failed: int = 0,
    last_failed: bool = False,
    limit: bool = False,
) -> Ending:
    return ending_of(made, replies, failed, last_failed=last_failed, context_limit=limit)


def test_the_table() -> None:
    assert named(outcome()) is Ending.FINISHED
    assert named(outcome(1)) is Ending.NONZERO_EXIT
    assert named(outcome(None)) is Ending.HARNESS_TIMEOUT
    assert named(outcome(1), limit=True) is Ending.CONTEXT_LIMIT
    assert named(outcome(1), replies=0) is Ending.NEVER_STARTED
    assert named(outcome(None), replies=0) is Ending.NEVER_STARTED
    assert named(outcome(1), failed=1) is Ending.MODEL_FAILED
    assert named(outcome(), failed=1) is Ending.FINISHED
    assert named(outcome(), failed=1, last_failed=True) is Ending.MODEL_FAILED
    assert named(outcome(137, oom=True)) is Ending.SANDBOX_DIED
    assert named(outcome(None, timed_out=False, started=False)) is Ending.SANDBOX_DIED


outcomes = st.builds(
    outcome,
    exit_code=st.sampled_from([None, 0, 1, 137]),
    oom=st.booleans(),
    started=st.booleans(),
)


@given(
    made=outcomes,
    replies=st.integers(0, 2),
    failed=st.integers(0, 2),
    last=st.booleans(),
    limit=st.booleans(),
)
def test_an_end_is_scored_only_without_a_fault_of_ours(
    made: HarnessOutcome, replies: int, failed: int, last: bool, limit: bool
) -> None:
    last = last and failed > 0
    ending = named(made, replies, failed, last, limit)
    if not made.started or last:
        assert ending not in SCORED
    elif made.exit_code == 0:
        assert ending in SCORED
    elif ending in SCORED:
        assert replies > 0
        assert failed == 0


def test_a_kill_of_a_child_for_memory_is_the_agents_business() -> None:
    assert named(outcome(0, oom=True)) is Ending.FINISHED
