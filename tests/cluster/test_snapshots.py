"""No slot that somebody may still read is written."""

from hypothesis import given
from hypothesis import strategies as st

from opengyre.cluster.snapshots import Snapshots


@given(st.lists(st.sampled_from(["step", "publish"]), max_size=20))
def test_the_next_slot_is_neither_the_newest_nor_the_published(events):
    snapshots = Snapshots(0)
    for event in events:
        if event == "publish":
            snapshots.publish()
            assert snapshots.published == snapshots.newest
        else:
            target = snapshots.next()
            assert target.name not in {snapshots.newest.name, snapshots.published.name}
            assert target.stamp == snapshots.newest.stamp + 1
            snapshots.stepped(target)
