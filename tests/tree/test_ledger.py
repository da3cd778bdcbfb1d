"""Every sampled token is counted once, alone and in sums."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opengyre.tree.ledger import Ledger, UnbalancedLedgerError, all_excluded

COUNTS = st.integers(0, 50)
REASONS = st.dictionaries(st.sampled_from(["auxiliary", "no-spread", "x"]), COUNTS)


@st.composite
def parts_of_a_role(draw: st.DrawFn) -> Ledger:
    parts = [draw(COUNTS) for _ in range(3)]
    excluded, truncated = draw(REASONS), draw(REASONS)
    return Ledger(
        sampled=sum(parts) + sum(excluded.values()) + sum(truncated.values()),
        trained=parts[0],
        shared=parts[1],
        cut=parts[2],
        excluded=excluded,
        truncated=truncated,
    )


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """With roles, or as older versions wrote them."""
    if draw(st.booleans()):
        return draw(parts_of_a_role())
    whole = Ledger()
    for role in draw(st.lists(st.sampled_from(["main", "sub-agent", "auxiliary"]))):
        whole.add_role(role, draw(parts_of_a_role()))
    return whole


@given(st.lists(ledgers()))
def test_sums_of_balanced_ledgers_balance(parts: list[Ledger]) -> None:
    total = Ledger()
    for part in parts:
        before = part.sampled
        total.add(part)
        assert part.sampled == before
    total.check()
    assert total.sampled == sum(part.sampled for part in parts)


@given(ledgers(), st.integers(-3, 3).filter(bool))
def test_one_token_too_many_or_too_few_is_seen(ledger: Ledger, slip: int) -> None:
    ledger.check()
    ledger.sampled += slip
    with pytest.raises(UnbalancedLedgerError):
        ledger.check()


def test_a_negative_count_never_balances() -> None:
    assert not Ledger(sampled=0, trained=1, cut=-1).balanced


@given(ledgers(), st.integers(1, 3))
def test_a_token_under_the_wrong_role_is_seen(ledger: Ledger, slip: int) -> None:
    if ledger.by_role:
        part = next(iter(ledger.by_role.values()))
        part.trained += slip
        part.sampled += slip
        with pytest.raises(UnbalancedLedgerError):
            ledger.check()


@given(st.dictionaries(st.sampled_from(["main", "unknown"]), COUNTS))
def test_an_excluded_execution_is_excluded_whole(sampled: dict[str, int]) -> None:
    ledger = all_excluded(sampled, "cancelled")
    ledger.check()
    assert ledger.sampled == sum(sampled.values()) == sum(ledger.excluded.values())
    assert {r: part.sampled for r, part in ledger.by_role.items()} == {
        role: tokens for role, tokens in sampled.items() if tokens
    }


def test_reasons_are_not_shared_between_ledgers() -> None:
    first, second = Ledger(), Ledger()
    first.exclude("auxiliary", 3)
    assert second.excluded == {}
