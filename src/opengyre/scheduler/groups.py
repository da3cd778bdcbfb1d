"""The outstanding groups: dispatched, not consumed.

Invariant: a group is ordered, then outstanding, then ready, then chosen, then consumed, once each
and in that order; a ready group has no live member. Ready groups are kept in order of completion.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import islice

from opengyre.scheduler.base import CarriedGroup


@dataclass
class Group:
    """One outstanding group."""

    group_id: str
    version: int
    """Published when it was dispatched."""
    step: int
    """Steps in those weights."""
    live: int
    """Members that have not ended."""
    started: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)


class Groups:
    """All outstanding groups of a run, and the executions they count."""

    def __init__(self, group_size: int) -> None:
        self._size = group_size
        self.outstanding: dict[str, Group] = {}
        self.ordered: deque[int] = deque()
        """Versions under which groups were ordered that are not reported as dispatched yet."""
        self.ready: dict[str, None] = {}
        """Ready and not chosen, in order of completion."""
        self.chosen: dict[str, None] = {}
        """Chosen for the burst under way and not consumed, in order of their slots."""
        self.waiting: Counter[int] = Counter()
        """How many groups of each dispatch version are ordered or outstanding and not chosen."""

    @property
    def count(self) -> int:
        """Groups outstanding, those ordered included."""
        return len(self.outstanding) + len(self.ordered)

    @property
    def live(self) -> int:
        """Executions that have not ended, those of ordered groups included."""
        live = sum(group.live for group in self.outstanding.values())
        return live + len(self.ordered) * self._size

    def order(self, version: int, count: int) -> None:
        """So many groups are about to be made."""
        self.ordered.extend([version] * count)
        self.waiting[version] += count

    def carry(self, carried: CarriedGroup, step: int) -> Group:
        """Take over a group from before a resume."""
        ended = self._size if carried.ready else carried.ended
        assert 0 <= ended <= self._size, carried
        group = self._add(carried.group_id, carried.version_dispatched, step, self._size - ended)
        self.waiting[group.version] += 1
        if carried.ready:
            self.ready[group.group_id] = None
        return group

    def dispatched(self, group_id: str, version: int, step: int) -> None:
        """A group that was ordered is there."""
        assert self.ordered, f"{group_id} was never ordered"
        assert self.ordered[0] <= version, f"{group_id}: ordered under {self.ordered[0]}"
        self._count_out(self.ordered.popleft())
        self.waiting[version] += 1
        self._add(group_id, version, step, self._size)

    def _add(self, group_id: str, version: int, step: int, live: int) -> Group:
        assert group_id not in self.outstanding, f"{group_id} is outstanding already"
        group = Group(group_id, version, step, live)
        self.outstanding[group_id] = group
        return group

    def _count_out(self, version: int) -> None:
        self.waiting[version] -= 1
        if not self.waiting[version]:
            del self.waiting[version]

    def _known(self, group_id: str) -> Group:
        assert group_id in self.outstanding, f"{group_id} is not outstanding"
        return self.outstanding[group_id]

    def start(self, execution_id: str, group_id: str) -> bool:
        """An execution runs; False when that is known (a retry)."""
        group = self._known(group_id)
        if execution_id in group.started:
            return False
        group.started.add(execution_id)
        return True

    def end(self, execution_id: str, group_id: str) -> None:
        """An execution is over."""
        group = self._known(group_id)
        assert execution_id not in group.ended, f"{execution_id} ended before"
        assert group.live > 0, f"{group_id} has no live member"
        group.ended.add(execution_id)
        group.live -= 1

    def complete(self, group_id: str) -> None:
        """A group can be consumed."""
        assert self._known(group_id).live == 0, f"{group_id} has live members"
        assert group_id not in self.ready, f"{group_id} is ready already"
        assert group_id not in self.chosen, f"{group_id} is chosen already"
        self.ready[group_id] = None

    def choose(self, newest: int) -> bool:
        """Give the next slot to the first ready group that is old enough; False when none is."""
        for group_id in self.ready:
            if self.outstanding[group_id].version <= newest:
                del self.ready[group_id]
                self.chosen[group_id] = None
                self._count_out(self.outstanding[group_id].version)
                return True
        return False

    def consume(self, count: int) -> list[Group]:
        """Take out the groups of the first slots."""
        gone = list(islice(self.chosen, count))
        assert len(gone) == count, f"{len(gone)} groups for {count} slots"
        for group_id in gone:
            del self.chosen[group_id]
        return [self.outstanding.pop(group_id) for group_id in gone]

    def check(self) -> None:
        """Raise AssertionError when the invariant is broken."""
        placed = [*self.ready, *self.chosen]
        assert len(placed) == len(set(placed)), placed
        assert all(self.outstanding[group_id].live == 0 for group_id in placed), placed
        unchosen = [g.version for g in self.outstanding.values() if g.group_id not in self.chosen]
        assert self.waiting == Counter([*self.ordered, *unchosen]), self.waiting
        for group in self.outstanding.values():
            assert 0 <= group.live <= self._size - len(group.ended), group
