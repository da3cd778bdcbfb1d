"""A rollout cell: calls share its time.

Every call on a cell gets tokens at the same rate, which falls with their number. So instead of
counting down each call, the cell counts the tokens that any call got since it began (`served`), and a
call ends when that count reaches the call's own mark. Marks are numbers in one row, not objects: what
an event touches should lie together.
"""

from array import array
from bisect import bisect
from collections.abc import Callable

from opengyre.sim.execution import Execution
from opengyre.sim.kernel import Kernel
from opengyre.sim.workload import Machine


class SimCell:
    """One cell (or the standalone pool) as the calls see it."""

    __slots__ = (
        "_calls",
        "_done",
        "_kernel",
        "_machine",
        "_marks",
        "_rate",
        "_rings",
        "_since",
        "_wake",
        "busy_s",
        "cache",
        "calls_s",
        "capacity",
        "frozen",
        "index",
        "residents",
        "served",
    )

    def __init__(
        self,
        index: int,
        capacity: int,
        kernel: Kernel,
        machine: Machine,
        done: Callable[[Execution], None],
    ) -> None:
        self.index, self.capacity = index, capacity
        self._kernel, self._machine = kernel, machine
        self._done = done
        """Told of each call that ends."""
        self.residents: dict[Execution, None] = {}
        """Executions placed here, in a call or not, in the order they came."""
        self.cache = 0
        """Number of its prefix cache: raised whenever that is dropped."""
        self.served = 0.0
        self.busy_s = 0.0
        """Time with at least one call."""
        self.calls_s = 0.0
        """The same, times their number."""
        self.frozen = False
        self._since = 0.0
        self._rate = 0.0
        """Tokens a second of each call."""
        self._calls: list[Execution] = []
        """What it serves, the first to end first; of those that end at once, the first to begin."""
        self._marks = array("d")
        """Where each ends."""
        self._wake = 0
        """Number of the newest wake-up; older ones are void."""
        self._rings = self._ring
        """Kept, since each event would else make one."""

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
        left = max(0.0, self._marks.pop(place) - self.served)
        self._set_alarm()
        return left

    def take_all(self) -> dict[Execution, float]:
        """Take every call away; returns the tokens that each still needs."""
        self.settle()
        marks = dict(zip(self._calls, self._marks, strict=True))
        self._calls.clear()
        del self._marks[:]
        self._set_alarm()
        left = {one: max(0.0, marks[one] - self.served) for one in self.residents if one in marks}
        for one in left:
            one.served = False
        return left

    def lengthen(self, extra: Callable[[Execution], float]) -> None:
        """Give every call so many tokens more to get."""
        left = self.take_all()
        for execution, tokens in left.items():
            self._enter(execution, tokens + extra(execution))
        self._set_alarm()

    def freeze(self) -> None:
        """Hold every call."""
        self.settle()
        self.frozen = True
        self._wake += 1

    def thaw(self) -> None:
        """Let the held calls go on."""
        self.settle()
        self.frozen = False
        self._set_alarm()

    def settle(self) -> None:
        """Bring served and the times up to now."""
        now = self._kernel.now
        if self._calls and not self.frozen:
            passed = now - self._since
            self.served += passed * self._rate
            self.busy_s += passed
            self.calls_s += passed * len(self._calls)
        self._since = now

    def _enter(self, execution: Execution, tokens: float) -> None:
        execution.served = True
        mark = self.served + tokens
        place = bisect(self._marks, mark)
        self._marks.insert(place, mark)
        self._calls.insert(place, execution)

    def _set_alarm(self) -> None:
        """After each change of what is served, which changes the rate."""
        self._wake += 1
        if not self._calls:
            return
        self._rate = self._machine.decode_tokens_s(len(self._calls))
        if not self.frozen:
            left = max(0.0, self._marks[0] - self.served)
            self._kernel.after(left / self._rate, self._rings, self._wake)

    def _ring(self, number: int) -> None:
        if number != self._wake:
            return
        self.settle()
        self.served = max(self.served, self._marks.pop(0))
        execution = self._calls.pop(0)
        execution.served = False
        self._set_alarm()
        self._done(execution)
