"""The outstanding groups: dispatched, not consumed.

Invariant: a group is ordered, then outstanding, then ready, then chosen, then consumed, once each
and in that order; a ready group has no live member. Ready groups are chosen in order of completion.
What is asked at every event costs no more when there are more groups.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import chain

from opengyre.scheduler.base import CarriedGroup


@dataclass(slots=True)
class Group:
    """One outstanding group."""

    group_id: str
    version: int
    """Published when it was dispatched."""
    step: int
    """Steps in those weights."""
    live: int
    """Members that have not ended."""
    complete: bool = False
    """Ready, or chosen since."""
    members: dict[str, bool] = field(default_factory=dict)
    """Those that started, and whether they ended."""


class Groups:
    """All outstanding groups of a run, and the executions they count."""

    def __init__(self, group_size: int) -> None:
        self._size = group_size
        self.outstanding: dict[str, Group] = {}
        self.ordered: deque[int] = deque()
        """Versions under which groups were ordered that are not reported as dispatched yet."""
        self._ready: dict[int, deque[tuple[int, str]]] = {}
        """Ready and not chosen, by dispatch version: (place in the order of completion, id)."""
        self._completed = 0
        self.chosen: list[str] = []
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

    @property
    def any_ready(self) -> bool:
        """Whether a group is ready and not chosen."""
        return bool(self._ready)

    @property
    def ready(self) -> list[str]:
        """Groups ready and not chosen, in order of completion."""
        return [group_id for _, group_id in sorted(chain.from_iterable(self._ready.values()))]

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
            self._complete(group)
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
        if execution_id in group.members:
            return False
        group.members[execution_id] = False
        return True

    def end(self, execution_id: str, group_id: str) -> None:
        """An execution is over."""
        group = self._known(group_id)
        assert not group.members.get(execution_id), f"{execution_id} ended before"
        assert group.live > 0, f"{group_id} has no live member"
        group.members[execution_id] = True
        group.live -= 1

    def complete(self, group_id: str) -> None:
        """A group can be consumed."""
        group = self._known(group_id)
        assert group.live == 0, f"{group_id} has live members"
        assert not group.complete, f"{group_id} is ready or chosen already"
        self._complete(group)

    def _complete(self, group: Group) -> None:
        group.complete = True
        self._completed += 1
        same = self._ready.setdefault(group.version, deque())
        same.append((self._completed, group.group_id))

    def choose(self, newest: int) -> bool:
        """Give the next slot to the first ready group that is old enough; False when none is."""
        firsts = [(same[0], version) for version, same in self._ready.items() if version <= newest]
        if not firsts:
            return False
        (_, group_id), version = min(firsts)
        self._ready[version].popleft()
        if not self._ready[version]:
            del self._ready[version]
        self.chosen.append(group_id)
        self._count_out(version)
        return True

    def consume(self, count: int) -> list[Group]:
        """Take out the groups of the first slots."""
        gone = self.chosen[:count]
        assert len(gone) == count, f"{len(gone)} groups for {count} slots"
        del self.chosen[:count]
        return [self.outstanding.pop(group_id) for group_id in gone]

    def check(self) -> None:
        """Raise AssertionError when the invariant is broken."""
        placed = [*self.ready, *self.chosen]
        assert len(placed) == len(set(placed)), placed
        complete = {g.group_id for g in self.outstanding.values() if g.complete}
        assert complete == set(placed), (complete, placed)
        assert all(self.outstanding[group_id].live == 0 for group_id in placed), placed
        unchosen = [g.version for g in self.outstanding.values() if g.group_id not in self.chosen]
        assert self.waiting == Counter([*self.ordered, *unchosen]), self.waiting
        for group in self.outstanding.values():
            assert 0 <= group.live <= self._size - sum(group.members.values()), group
