"""The order in which tasks are given to groups.

Invariant: the task of a group follows from the seed and the group's index alone, so that a resumed
run goes on where it stopped; every task comes once before any comes again.
"""

import random
from collections.abc import Sequence

from opengyre.core.errors import UserError
from opengyre.tasks.base import Task


class TaskCycle:
    """Endless passes over the tasks, each in a new order."""

    def __init__(self, tasks: Sequence[Task], seed: int) -> None:
        if not tasks:
            raise UserError("at least one task", "none", "check the tasks section")
        self._tasks = sorted(tasks, key=lambda task: task.task_id)
        self._seed = seed
        self._pass, self._order = -1, self._tasks

    def next_task(self, index: int) -> Task:
        """The task of group number index, from 0."""
        number, place = divmod(index, len(self._tasks))
        if number != self._pass:
            rng = random.Random(f"{self._seed}:{number}")
            self._pass, self._order = number, rng.sample(self._tasks, len(self._tasks))
        return self._order[place]
