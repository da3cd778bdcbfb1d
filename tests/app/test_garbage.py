import gc
import weakref

from opengyre.app.garbage import (
    BEATS_OF_YOUTH,
    QUIET_BEATS,
    ROOM,
    TOO_MANY_YOUNG,
    WORTH_IT,
    Aside,
    short_collections,
)
from opengyre.app.machine import peak_bytes
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


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await WallClock().sleep(0.0)


async def test_young_cycles_go_at_a_beat_while_calls_wait() -> None:
    async with short_collections(Beats(), lambda: False):
        seen = weakref.ref(Ring())
        await turns()
        assert seen() is None


async def test_old_cycles_go_once_no_call_waited_for_long() -> None:
    waiting = True
    async with short_collections(Beats(), lambda: not waiting):
        ring = Ring()
        seen = weakref.ref(ring)
        kept: list[list[int]] = [[] for _ in range(WORTH_IT)]
        await turns(2 * BEATS_OF_YOUTH)
        del ring
        await turns(2 * BEATS_OF_YOUTH)
        waiting = False
        await turns(QUIET_BEATS // 2)
        waiting = True
        await turns()
        waiting = False
        await turns(QUIET_BEATS // 2)
        assert seen() is not None
        await turns(QUIET_BEATS)
        assert seen() is None
        assert len(kept) == WORTH_IT


async def test_what_no_cycle_holds_goes_with_its_last_reference_however_old() -> None:
    async with short_collections(Beats(), lambda: False):
        leaf = Leaf()
        seen = weakref.ref(leaf)
        await turns(2 * BEATS_OF_YOUTH)
        assert gc.get_freeze_count() > 0
        del leaf
        assert seen() is None


async def test_no_collection_begins_by_itself_and_none_looks_at_more_than_is_young() -> None:
    looks: list[tuple[int, int]] = []

    def looked(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looks.append((info["generation"], len(gc.get_objects(generation=0))))

    kept: list[list[list[int]]] = []
    async with short_collections(Beats(), lambda: False):
        await turns()
        gc.callbacks.append(looked)
        try:
            for _ in range(5):
                kept.append([[] for _ in range(TOO_MANY_YOUNG + 1)])
                await turns()
        finally:
            gc.callbacks.remove(looked)
    assert looks, "young objects are looked at"
    assert all(age == 0 and young <= TOO_MANY_YOUNG for age, young in looks)


async def test_afterwards_all_is_as_before() -> None:
    assert gc.isenabled()
    async with short_collections(Beats(), lambda: True):
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_memory_that_doubles_is_worth_a_long_look_while_calls_wait() -> None:
    peak = ROOM
    aside = Aside(lambda: peak)
    ring = Ring()
    seen = weakref.ref(ring)
    try:
        for _ in range(2 * BEATS_OF_YOUTH):
            aside.beat(idle=False)
        del ring
        peak = 3 * ROOM - 1
        aside.beat(idle=False)
        assert seen() is not None
        peak = 3 * ROOM
        aside.beat(idle=False)
        assert seen() is None
    finally:
        gc.unfreeze()


def test_this_process_occupies_some_megabytes() -> None:
    assert 1 << 23 < peak_bytes() < 1 << 40
