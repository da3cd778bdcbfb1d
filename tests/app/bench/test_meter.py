import os

from hypothesis import given
from hypothesis import strategies as st

from opengyre.app.bench.meter import CellMeter, cpu_seconds
from opengyre.core.reasons import CellRole

CHANGES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(CellRole), st.integers(0, 9)), max_size=20
)


@given(changes=CHANGES)
def test_all_cpu_time_is_booked_under_the_role_that_the_cell_had(
    changes: list[tuple[int, CellRole, int]],
) -> None:
    used = [5.0, 6.0, 7.0]
    roles = dict.fromkeys(range(3), CellRole.ROLLOUT)
    meter = CellMeter(used.__getitem__, roles)
    wanted = dict.fromkeys(CellRole, 0.0)
    for cell, role, seconds in changes:
        used[cell] += seconds
        wanted[roles[cell]] += seconds
        roles[cell] = role
        meter.roles(roles)
        if seconds % 2:
            meter.read()
    meter.read()
    assert meter.seconds == wanted


def test_a_process_has_used_time_and_one_that_is_gone_none() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert cpu_seconds(2**22 + 1) == 0
