"""Thinking tokens are those up to the end of the thinking, whatever it says."""

from hypothesis import given
from hypothesis import strategies as st

from opengyre.proxy.thinking import thinking_tokens
from tests.proxy.conftest import FAMILY

thoughts = st.sampled_from(["think", "t", "a plan", "é🙂", "<b>", "I look.", "one\n\ntwo"])


@given(thoughts, st.sampled_from(["", "I look.", "think", "é"]))
def test_they_end_where_the_thinking_ends(thinking: str, text: str) -> None:
    ids = FAMILY.encode(f"<think>\n{thinking}\n</think>\n\n{text}")
    said = FAMILY.parse(ids).thinking
    count = thinking_tokens(FAMILY.decode, ids, said)
    assert said == thinking
    assert thinking in FAMILY.decode(ids[:count]).removeprefix("<think>")
    assert thinking not in FAMILY.decode(ids[: count - 1]).removeprefix("<think>")


@given(st.text(max_size=9))
def test_no_thinking_is_no_tokens(text: str) -> None:
    assert thinking_tokens(FAMILY.decode, FAMILY.encode(text), "") == 0
