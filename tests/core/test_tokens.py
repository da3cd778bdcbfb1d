from array import array

from hypothesis import given
from hypothesis import strategies as st

from opengyre.core.tokens import TokenIds

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=8)


@given(IDS, IDS, st.integers(-9, 9), st.integers(-9, 9))
def test_token_ids_behave_like_the_list_of_the_same_numbers(
    one: list[int], two: list[int], start: int, end: int
) -> None:
    ids = TokenIds(one)
    assert ids == one
    assert one == ids
    assert (ids == two) == (one == two)
    assert (ids != two) == (one != two)
    assert (ids == TokenIds(two)) == (one == two)
    assert ids + two == one + two
    assert two + ids == two + one
    assert ids[start:end] == one[start:end]
    assert ids[start:end][:1] == one[start:end][:1]
    assert list(ids) == one
    assert len(ids) == len(one)


@given(st.lists(IDS, max_size=4))
def test_joined_pieces_stand_one_after_the_other(pieces: list[list[int]]) -> None:
    arrays = [array("i", piece) for piece in pieces]
    assert TokenIds.joined(arrays) == [token for piece in pieces for token in piece]
