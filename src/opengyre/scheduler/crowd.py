"""When an execution leaves its cell between two calls, under a policy that evens out.

Invariant: live cells and simulated ones ask the same question.
"""

CROWDED = 0.25
"""Of a cell's capacity: so many executions more than elsewhere make calls slower for longer than it takes
to compute one context again. In simulated settings a fifth to a half gained the same."""
LEAST = 2
"""With one more than elsewhere, a move would only exchange the two."""


def is_crowded(executions: int, fewest: int, capacity: int) -> bool:
    """fewest: executions on the serving cell that has the fewest."""
    return executions - fewest >= max(LEAST, CROWDED * capacity)
