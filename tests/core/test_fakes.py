"""The stand-ins keep the promises of what they stand in for."""

from opengyre.core.fakes import CountingIds, FakeClock


async def test_virtual_time_passes_only_when_told_to() -> None:
    clock = FakeClock(3.0)
    assert clock.now() == clock.now() == 3.0
    await clock.sleep(3600.0)
    clock.advance(0.5)
    assert clock.now() == 3603.5


def test_counted_ids_are_fresh_and_the_same_in_each_replay() -> None:
    one, two = CountingIds(), CountingIds()
    kinds = ["call", "key", "call"]
    assert [one.new(kind) for kind in kinds] == [two.new(kind) for kind in kinds]
    assert len({one.new("call") for _ in range(50)}) == 50
