import gc
import weakref

from opengyre.app.garbage import TOO_MANY, WORTH_IT, Aside, short_collections
from opengyre.app.wall import WallClock


class Beats:
    """Time that passes as fast as the event loop turns."""

    def now(self) -> float:
        return 0.0

    async def sleep(self, _seconds: float) -> None:
        await WallClock().sleep(0.0)


class Ring:
    """Holds itself."""

    def __init__(self) -> None:
        self.me = self


class Leaf:
    """Holds nothing."""


def grow_old(times: int) -> None:
    for _ in range(times):
        gc.collect(1)


async def turns() -> None:
    for _ in range(10):
        await WallClock().sleep(0.0)


async def test_old_cycles_go_once_no_call_waits() -> None:
    waiting = True
    async with short_collections(Beats(), lambda: not waiting):
        ring = Ring()
        seen = weakref.ref(ring)
        grow_old(WORTH_IT)
        del ring
        await turns()
        assert seen() is not None
        waiting = False
        await turns()
        assert seen() is None


async def test_old_cycles_go_while_calls_wait_before_there_are_too_many() -> None:
    async with short_collections(Beats(), lambda: False):
        ring = Ring()
        seen = weakref.ref(ring)
        grow_old(TOO_MANY)
        del ring
        await turns()
        assert seen() is None


async def test_what_no_cycle_holds_goes_with_its_last_reference_however_old() -> None:
    async with short_collections(Beats(), lambda: False):
        leaf = Leaf()
        seen = weakref.ref(leaf)
        grow_old(2)
        assert gc.get_freeze_count() > 0
        del leaf
        assert seen() is None


async def test_afterwards_all_is_as_before() -> None:
    before = list(gc.callbacks)
    async with short_collections(Beats(), lambda: True):
        assert len(gc.callbacks) == len(before) + 1
    assert gc.callbacks == before
    assert gc.get_freeze_count() == 0


def test_only_what_outlived_two_collections_is_set_aside() -> None:
    aside = Aside()
    aside.collected("stop", {"generation": 0})
    aside.collected("start", {"generation": 1})
    assert aside.times == 0
