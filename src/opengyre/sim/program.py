"""What agent programs do between and in their calls: drawn from a workload, or as it was recorded.

Invariant: what an execution does follows from its seed or its script, and from how many of its calls
are done; when they were done changes nothing. So all that it will draw is drawn at its start, with a
generator that serves one execution after another: one of its own would take 2.5 kB for as long as it
lives, and it is memory that makes large worlds slow.
"""

import random
from array import array
from collections.abc import Iterator
from itertools import islice

from opengyre.sim.execution import CACHED, CONTEXT, DRAWN, Execution
from opengyre.sim.workload import Workload, lognormal

VERDICT = 2
"""Numbers drawn for the verdict, after the last call."""


class Programs:
    """All agent programs of a world."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload
        self._draw = random.Random(0)
        """Seeded anew for each execution."""

    def begin(self, execution: Execution) -> float:
        """The program starts; returns the seconds to its first call, or to its end if it has none."""
        script = execution.script
        execution.row = row = array("d", (0.0, 0.0))
        if script is not None:
            return script.turns[0].wait_s if script.turns else script.stop_s
        row[CONTEXT] = self._load.first_prompt_tokens
        self._draw.seed(execution.seed)
        row.extend(self._turns(execution.calls_left))
        row.extend(self._draw.random() for _ in range(VERDICT))
        return self._load.start_s

    def _turns(self, calls: int) -> Iterator[float]:
        """Tokens of each answer and, but for the last, seconds from it to the next call."""
        load, draw = self._load, self._draw
        for left in range(calls - 1, -1, -1):
            yield _spread(load.answer_tokens, load.answer_spread, draw)
            if not left:
                return
            if load.tool_exponential and load.tool_s:
                yield draw.expovariate(1.0 / load.tool_s)
            else:
                yield _spread(load.tool_s, load.tool_spread, draw)

    def answer_tokens(self, execution: Execution) -> float:
        """Of the next call, whose prompt is the execution's context from now on."""
        script, row, used = execution.script, execution.row, execution.used
        execution.used = used + 1
        if script is None:
            return row[DRAWN + used]
        turn = script.turns[-execution.calls_left]
        row[CONTEXT] = turn.prompt_tokens
        if row[CACHED]:  # else it has just begun, or left its cache behind in a move
            row[CACHED] = turn.prompt_tokens - turn.new_tokens
        return turn.answer_tokens

    def wait_after_answer(self, execution: Execution) -> float:
        """Seconds from an answer, already counted, to the next call or the program's end."""
        script, left = execution.script, execution.calls_left
        if script is not None:
            return script.turns[-left].wait_s if left else script.stop_s
        if not left:
            return self._load.stop_s
        row, used = execution.row, execution.used
        execution.used = used + 1
        row[CONTEXT] += self._load.observation_tokens
        return row[DRAWN + used]

    @staticmethod
    def sampled_tokens(execution: Execution) -> float:
        """Of all answers that it began."""
        used, script = execution.used, execution.script
        if script is not None:
            return sum((turn.answer_tokens for turn in script.turns[:used]), 0.0)
        return sum(execution.row[DRAWN : DRAWN + used : 2], 0.0)

    def verdict(self, execution: Execution) -> tuple[bool, bool]:
        """Whether it is excluded; and whether its group, if this is the last verdict, has no spread."""
        load = self._load
        if execution.script is not None:
            return False, False
        excluded, no_spread = self._last_draws(execution)
        return excluded < load.excluded_share, no_spread < load.no_spread_share

    def _last_draws(self, execution: Execution) -> tuple[float, float]:
        """Two numbers between 0 and 1, the next that it draws when it is over."""
        row, used = execution.row, execution.used
        drawn = len(row) - DRAWN
        if used == drawn - VERDICT:
            return row[-2], row[-1]
        # It was cut off: its generator as it was then.
        self._draw.seed(execution.seed)
        for _ in islice(self._turns(drawn), used):
            pass
        return self._draw.random(), self._draw.random()


def _spread(mean: float, spread: float, draw: random.Random) -> float:
    return lognormal(mean, spread, draw.gauss(0.0, 1.0)) if spread else mean
