"""The harness's clock: an execution that runs longer than its limit is killed.

Invariant: it rings for a running execution at the very time of its limit. All have the same limit, so
they come to it in the order they started, and one event that waits, for the first, is enough; what
ended before is forgotten at once.
"""

import math
from collections import OrderedDict
from collections.abc import Callable

from opengyre.sim.execution import Execution
from opengyre.sim.kernel import Kernel


class Limits:
    """Watches the executions that run."""

    def __init__(
        self, kernel: Kernel, limit_s: float, reached: Callable[[Execution], None]
    ) -> None:
        self._kernel, self._limit_s = kernel, limit_s
        self._reached = reached
        self._running: OrderedDict[Execution, int] = OrderedDict()
        """The number of the event that each comes to its limit."""
        self._armed = False

    def watch(self, execution: Execution) -> None:
        """It started now."""
        if math.isinf(self._limit_s):
            return
        self._running[execution] = self._kernel.number()
        if not self._armed:
            self._arm()

    def forget(self, execution: Execution) -> None:
        """It ended."""
        self._running.pop(execution, None)

    def _arm(self) -> None:
        first = next(iter(self._running), None)
        self._armed = first is not None
        if first is not None:
            limit = first.started_at + self._limit_s
            self._kernel.put(limit, self._running[first], self._ring, first)

    def _ring(self, execution: Execution) -> None:
        due = self._running.pop(execution, None) is not None
        self._arm()
        if due:
            self._reached(execution)
