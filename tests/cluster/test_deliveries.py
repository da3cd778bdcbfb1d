"""Each micro-step's gradients count once: at the core, in shared memory, or done again."""

from hypothesis import given
from hypothesis import strategies as st

from opengyre.cluster.base import CORE
from opengyre.cluster.deliveries import Deliveries

EVENTS = st.lists(
    st.tuples(st.sampled_from(["compute", "deliver", "lose"]), st.integers(0, 3)), max_size=40
)


@given(EVENTS)
def test_every_micro_step_is_in_exactly_one_place(events):
    book = Deliveries()
    held: dict[int, list[str]] = {cell: [] for cell in range(4)}
    delivered: dict[str, list[str]] = {}
    again: list[str] = []
    for i, (what, cell) in enumerate(events):
        if what == "compute":
            held[cell].append(f"m{i}")
            book.computed(cell, f"m{i}")
        elif what == "deliver" and cell != CORE and cell in book.holders():
            source = book.new_source(cell)
            delivered[source], held[cell] = held[cell], []
            book.delivered(cell, source)
        elif what == "lose":
            book.lost(cell)
            assert (book.owing() is None) == (not held[cell])
            assert book.take_undelivered(cell) == held[cell]
            again += held[cell]
            held[cell] = []
            assert book.take_undelivered(cell) == []
        assert book.holders() == [c for c in range(4) if held[c]]
    assert book.sources() == list(delivered)
    everything = [*again, *(m for ms in [*held.values(), *delivered.values()] for m in ms)]
    assert sorted(everything) == sorted(
        f"m{i}" for i, (w, _) in enumerate(events) if w == "compute"
    )
    assert book.stepped() == list(delivered)
    assert not book.holders()
    assert not book.sources()
