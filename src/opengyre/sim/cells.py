"""A rollout cell: calls share its time.

Every call on a cell gets tokens at the same rate, which falls with their number. So instead of
counting down each call, the cell counts the tokens that any call got since it began (served), and a
call ends when that count reaches the call's own mark. These are numbers in one row, not objects: what
an event touches should lie together.
"""

from array import array
from bisect import bisect
from collections.abc import Callable

from opengyre.sim.execution import Execution
from opengyre.sim.fleet import Fleet
from opengyre.sim.kernel import Kernel

SERVED, SINCE, MARKS = 0, 1, 2
"""Places in a cell's row: tokens that any call got so far; until when that is counted; then where each
call ends, the first to end first."""


class SimCell:
    """One cell (or the standalone pool) as the calls see it."""

    __slots__ = (
        "_alarm",
        "_calls",
        "_done",
        "_fleet",
        "_kernel",
        "_rate",
        "_row",
        "cache",
        "capacity",
        "index",
        "residents",
    )

    def __init__(
        self,
        index: int,
        capacity: int,
        kernel: Kernel,
        fleet: Fleet,
        done: Callable[[Execution], None],
    ) -> None:
        self.index, self.capacity = index, capacity
        self._kernel, self._fleet = kernel, fleet
        self._done = done
        """Told of each call that ends."""
        self.residents: dict[Execution, None] = {}
        """Executions placed here, in a call or not, in the order they came."""
        self.cache = 0
        """Number of its prefix cache: raised whenever that is dropped."""
        self._row = array("d", (0.0, 0.0))
        self._rate = 0.0
        """Tokens a second of each call."""
        self._calls: list[Execution] = []
        """What it serves, the first to end first; of those that end at once, the first to begin."""
        self._alarm = 0
        """Number of the event that is the end of its first call; older ones are void."""

    def begin(self, execution: Execution, tokens: float) -> None:
        """Serve its next call, of so many tokens."""
        self.settle()
        self._enter(execution, tokens)
        self._set_alarm()

    def take(self, execution: Execution) -> float:
        """Take its call away; returns the tokens that it still needs."""
        self.settle()
        assert execution.served, "a call was taken away twice"
        execution.served = False
        place = self._calls.index(execution)
        del self._calls[place]
        left = max(0.0, self._row.pop(MARKS + place) - self._row[SERVED])
        self._set_alarm()
        return left

    def take_all(self) -> dict[Execution, float]:
        """Take every call away; returns the tokens that each still needs."""
        self.settle()
        row, served = self._row, self._row[SERVED]
        marks = dict(zip(self._calls, row[MARKS:], strict=True))
        self._calls.clear()
        del row[MARKS:]
        self._set_alarm()
        left = {one: max(0.0, marks[one] - served) for one in self.residents if one in marks}
        for one in left:
            one.served = False
        return left

    def lengthen(self, extra: Callable[[Execution], float]) -> None:
        """Give every call so many tokens more to get."""
        left = self.take_all()
        for execution, tokens in left.items():
            self._enter(execution, tokens + extra(execution))
        self._set_alarm()

    def settle(self) -> None:
        """Bring served and the times up to now."""
        now, row, calls = self._kernel.now, self._row, len(self._calls)
        if calls:
            passed = now - row[SINCE]
            row[SERVED] += passed * self._rate
            self._fleet.busy_s += passed
            self._fleet.calls_s += passed * calls
        row[SINCE] = now

    def _enter(self, execution: Execution, tokens: float) -> None:
        execution.served = True
        row = self._row
        mark = row[SERVED] + tokens
        place = bisect(row, mark, MARKS)
        row.insert(place, mark)
        self._calls.insert(place - MARKS, execution)

    def _set_alarm(self) -> None:
        """After each change of what is served, which changes the rate."""
        calls = len(self._calls)
        if not calls:
            self._alarm = 0
            return
        self._rate = rate = self._fleet.rates[calls]
        row = self._row
        left = row[MARKS] - row[SERVED]
        self._alarm = self._kernel.after(left / rate if left > 0.0 else 0.0, SimCell._ring, self)

    def _ring(self) -> None:
        """The first call ends, unless that was before something changed."""
        if self._kernel.current != self._alarm:
            return
        self.settle()
        row = self._row
        mark = row.pop(MARKS)
        if mark > row[SERVED]:
            row[SERVED] = mark
        execution = self._calls.pop(0)
        execution.served = False
        self._set_alarm()
        self._done(execution)
