"""An execution stays on its cell while that serves; a moved one goes where it can stay longest. When cells
are to serve evenly, executions leave a crowded cell."""

from hypothesis import given
from hypothesis import strategies as st

from opengyre.cluster.routes import Routes


@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sets(st.integers(0, 3), min_size=1)),
        max_size=40,
    )
)
def test_an_execution_leaves_its_home_only_when_that_does_not_serve(steps):
    routes = Routes(2)
    for execution, serving in steps:
        before = routes.home(execution)
        chosen = routes.choose(execution, serving)
        assert chosen in serving
        assert routes.home(execution) == chosen
        if before in serving:
            assert chosen == before
    homes = [routes.home(e) for e in "abcdefgh"]
    assert all(routes.load(cell) == homes.count(cell) for cell in range(4))


def test_new_executions_spread():
    routes = Routes(2)
    chosen = [routes.choose(f"e{i}", {0, 1, 2}) for i in range(6)]
    assert sorted(chosen) == [0, 0, 1, 1, 2, 2]


def test_moved_executions_fill_the_last_cells_of_the_order():
    """Those that wait for a tool, without a call in flight, like the others."""
    routes = Routes(2)
    for i in range(6):
        routes.choose(f"e{i}", {0, 4, 5})
    chosen = [routes.choose(f"e{i}", {1, 2, 3}) for i in range(6)]
    assert chosen == [3, 3, 2, 2, 1, 1]


def test_released_executions_take_no_room():
    routes = Routes(1)
    routes.choose("a", {0, 1})
    routes.release("a")
    routes.release("a")
    assert routes.choose("b", {0, 1}) == 1


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 30), st.sets(st.integers(0, 3), min_size=1)),
        max_size=60,
    ),
    capacity=st.integers(1, 12),
)
def test_cells_that_are_to_serve_evenly_do_once_all_have_called_again(steps, capacity):
    routes = Routes(capacity, evens_out=True)
    for number, serving in steps:
        routes.choose(f"e{number}", serving)
    serving = {0, 1, 2, 3}
    known = [f"e{n}" for n in range(31) if routes.home(f"e{n}") is not None]
    for _ in range(2):
        for execution in known:
            routes.choose(execution, serving)
    loads = [routes.load(cell) for cell in serving]
    assert max(loads) - min(loads) < max(2, capacity / 4 + 1)
    assert [routes.choose(e, serving) for e in known] == [routes.home(e) for e in known]


def test_an_execution_leaves_a_cell_only_for_a_clearly_emptier_one():
    routes = Routes(8, evens_out=True)
    for i in range(3):
        routes.choose(f"e{i}", {1})
    assert routes.choose("e0", {0, 1}) == 0
    assert routes.choose("e1", {0, 1}) == 1, "the cells differ by one, and its KV cache is here"
