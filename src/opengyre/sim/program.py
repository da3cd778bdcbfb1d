"""What agent programs do between and in their calls: drawn from a workload, or as it was recorded.

Invariant: what an execution does follows from its seed or its script, and from how many of its calls
are done; when they were done changes nothing.
"""

import random

from opengyre.sim.execution import Execution
from opengyre.sim.workload import Workload, lognormal


class Programs:
    """All agent programs of a world."""

    def __init__(self, workload: Workload) -> None:
        self._load = workload

    def begin(self, execution: Execution) -> float:
        """The program starts; returns the seconds to its first call, or to its end if it has none."""
        script = execution.script
        if script is not None:
            return script.turns[0].wait_s if script.turns else script.stop_s
        execution.context = self._load.first_prompt_tokens
        execution.draw = random.Random(execution.seed)
        return self._load.start_s

    def answer_tokens(self, execution: Execution) -> float:
        """Of the next call, whose prompt is the execution's context from now on."""
        script = execution.script
        if script is not None:
            turn = script.turns[-execution.calls_left]
            execution.context = turn.prompt_tokens
            if execution.cached:  # else it has just begun, or left its cache behind in a move
                execution.cached = turn.prompt_tokens - turn.new_tokens
            return turn.answer_tokens
        load = self._load
        if not load.answer_spread:
            return load.answer_tokens
        return lognormal(load.answer_tokens, load.answer_spread, drawing(execution).gauss(0.0, 1.0))

    def wait_after_answer(self, execution: Execution) -> float:
        """Seconds from an answer, already counted, to the next call or the program's end."""
        load, script, left = self._load, execution.script, execution.calls_left
        if script is not None:
            return script.turns[-left].wait_s if left else script.stop_s
        if not left:
            return load.stop_s
        execution.context += load.observation_tokens
        if load.tool_exponential and load.tool_s:
            return drawing(execution).expovariate(1.0 / load.tool_s)
        if not load.tool_spread:
            return load.tool_s
        return lognormal(load.tool_s, load.tool_spread, drawing(execution).gauss(0.0, 1.0))


def drawing(execution: Execution) -> random.Random:
    """The generator of a drawn execution between its start and its verdict."""
    assert execution.draw is not None, f"{execution.member} is recorded, or not under way"
    return execution.draw
