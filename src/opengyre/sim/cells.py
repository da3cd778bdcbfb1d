"""A rollout cell: calls share its time.

Every call on a cell gets tokens at the same rate, which falls with their number. So instead of
counting down each call, the cell counts the tokens that any call got since it began (`served`), and a
call ends when that count reaches the call's own mark: an event costs O(log calls).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

from opengyre.sim.kernel import Kernel
from opengyre.sim.workload import Machine


@dataclass(eq=False, slots=True)
class Service:
    """One call's stay on a cell."""

    mark: float
    """Of served, at which it ends."""
    done: Callable[[], None]
    gone: bool = False
    """Ended or taken away; its entry in the heap is dead."""


@dataclass(eq=False)
class SimCell:
    """One cell (or the standalone pool) as the calls see it."""

    index: int
    capacity: int
    kernel: Kernel
    machine: Machine
    residents: int = 0
    """Executions placed here, in a call or not."""
    cache: int = 0
    """Number of its prefix cache: raised whenever that is dropped."""
    served: float = 0.0
    busy_s: float = 0.0
    """Time with at least one call."""
    calls_s: float = 0.0
    """The same, times their number."""
    frozen: bool = False
    _since: float = 0.0
    _calls: int = 0
    _heap: list[tuple[float, int, Service]] = field(default_factory=list)
    _made: int = 0
    _wake: int = 0
    """Number of the newest wake-up; older ones are void."""

    def begin(self, tokens: float, done: Callable[[], None]) -> Service:
        """Serve a call of so many tokens; done is called at its end."""
        self._advance()
        self._made += 1
        service = Service(self.served + tokens, done)
        heapq.heappush(self._heap, (service.mark, self._made, service))
        self._calls += 1
        self._set_alarm()
        return service

    def take(self, service: Service) -> float:
        """Take a call away; returns the tokens that it still needs."""
        self._advance()
        assert not service.gone, "a call was taken away twice"
        service.gone = True
        self._calls -= 1
        self._set_alarm()
        return max(0.0, service.mark - self.served)

    def freeze(self) -> None:
        """Hold every call."""
        self._advance()
        self.frozen = True
        self._wake += 1

    def thaw(self) -> None:
        """Let the held calls go on."""
        self._advance()
        self.frozen = False
        self._set_alarm()

    def settle(self) -> None:
        """Bring served and busy_s up to now."""
        self._advance()

    def _advance(self) -> None:
        now = self.kernel.now
        if self._calls and not self.frozen:
            passed = now - self._since
            self.served += passed * self.machine.decode_tokens_s(self._calls)
            self.busy_s += passed
            self.calls_s += passed * self._calls
        self._since = now

    def _set_alarm(self) -> None:
        heap = self._heap
        while heap and heap[0][2].gone:
            heapq.heappop(heap)
        self._wake += 1
        if not heap or self.frozen:
            return
        left = max(0.0, heap[0][0] - self.served)
        number = self._wake
        self.kernel.after(
            left / self.machine.decode_tokens_s(self._calls), lambda: self._ring(number)
        )

    def _ring(self, number: int) -> None:
        if number != self._wake:
            return
        self._advance()
        service = heapq.heappop(self._heap)[2]
        self.served = max(self.served, service.mark)
        service.gone = True
        self._calls -= 1
        self._set_alarm()
        service.done()
