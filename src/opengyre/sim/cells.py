"""A rollout cell: calls share its time.

Every call on a cell gets tokens at the same rate, which falls with their number. So instead of
counting down each call, the cell counts the tokens that any call got since it began (`served`), and a
call ends when that count reaches the call's own mark: an event costs O(log calls).
"""

import heapq
from collections.abc import Callable

from opengyre.sim.execution import Execution
from opengyre.sim.kernel import Kernel
from opengyre.sim.workload import Machine


class SimCell:
    """One cell (or the standalone pool) as the calls see it."""

    __slots__ = (
        "_calls",
        "_done",
        "_heap",
        "_kernel",
        "_machine",
        "_rate",
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
        self._calls = 0
        self._rate = 0.0
        """Tokens a second of each call."""
        self._heap: list[tuple[float, int, Execution]] = []
        """(mark, turn, execution); the entry of a call that was taken away is dead."""
        self._wake = 0
        """Number of the newest wake-up; older ones are void."""

    def begin(self, execution: Execution, tokens: float) -> None:
        """Serve its next call, of so many tokens."""
        self.settle()
        self._enter(execution, tokens)
        self._set_calls(self._calls + 1)
        self._set_alarm()

    def take(self, execution: Execution) -> float:
        """Take its call away; returns the tokens that it still needs."""
        self.settle()
        left = self._leave(execution)
        self._set_calls(self._calls - 1)
        self._set_alarm()
        return left

    def take_all(self) -> dict[Execution, float]:
        """Take every call away; returns the tokens that each still needs."""
        self.settle()
        left = {one: self._leave(one) for one in self.residents if one.turn}
        self._heap.clear()
        self._set_calls(0)
        self._set_alarm()
        return left

    def lengthen(self, extra: Callable[[Execution], float]) -> None:
        """Give every call so many tokens more to get."""
        left = self.take_all()
        for execution, tokens in left.items():
            self._enter(execution, tokens + extra(execution))
        self._set_calls(len(left))
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
            self.calls_s += passed * self._calls
        self._since = now

    def _enter(self, execution: Execution, tokens: float) -> None:
        execution.turn = turn = self._kernel.number()
        execution.mark = mark = self.served + tokens
        heapq.heappush(self._heap, (mark, turn, execution))

    def _leave(self, execution: Execution) -> float:
        assert execution.turn, "a call was taken away twice"
        execution.turn = 0
        return max(0.0, execution.mark - self.served)

    def _set_calls(self, calls: int) -> None:
        self._calls = calls
        self._rate = self._machine.decode_tokens_s(calls) if calls else 0.0

    def _set_alarm(self) -> None:
        heap = self._heap
        while heap and heap[0][2].turn != heap[0][1]:
            heapq.heappop(heap)
        self._wake += 1
        if not heap or self.frozen:
            return
        left = max(0.0, heap[0][0] - self.served)
        self._kernel.after(left / self._rate, self._ring, self._wake)

    def _ring(self, number: int) -> None:
        if number != self._wake:
            return
        self.settle()
        mark, _, execution = heapq.heappop(self._heap)
        self.served = max(self.served, mark)
        execution.turn = 0
        self._set_calls(self._calls - 1)
        self._set_alarm()
        self._done(execution)
