from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from opengyre.app.report.lanes import busy_share, lanes
from opengyre.core.reasons import CellRole
from opengyre.store.rows import EventRow

roles = st.sampled_from(list(CellRole))


@given(st.lists(st.tuples(st.integers(0, 2), roles, st.integers(0, 5)), max_size=20))
def test_lanes_cover_every_cell_from_start_to_end_without_gap_or_overlap(
    changes: list[tuple[int, CellRole, int]],
) -> None:
    at, events = 0.0, []
    for cell, role, wait in changes:
        at += wait
        events.append(
            EventRow(at=at, kind="role", fields={"cell": float(cell), "role": role.value})
        )
    end = at + 1
    spans = lanes(events, end)
    for cell in {cell for cell, _, _ in changes}:
        mine = [span for span in spans if span.cell == cell]
        assert mine[0].start == 0.0
        assert mine[-1].end == end
        assert all(a.end == b.start for a, b in pairwise(mine))
        last = [role for changed, role, _ in changes if changed == cell][-1]
        assert mine[-1].role is last


def test_a_clock_that_was_set_back_makes_no_overlap() -> None:
    changes = [(5.0, "training"), (9.0, "rollout"), (7.0, "training")]
    events = [
        EventRow(at=at, kind="role", fields={"cell": 0.0, "role": role}) for at, role in changes
    ]
    spans = lanes(events, 10.0)
    assert all(a.end == b.start for a, b in pairwise(spans))
    assert spans[-1].end == 10.0


def test_busy_share_is_a_share_of_all_cells_time() -> None:
    events = [EventRow(at=2.0, kind="role", fields={"cell": 0.0, "role": "training"})]
    events += [EventRow(at=4.0, kind="role", fields={"cell": 1.0, "role": "rollout"})]
    assert busy_share(lanes(events, 4.0), CellRole.TRAINING) == 0.25
    assert busy_share([], CellRole.TRAINING) == 0.0
