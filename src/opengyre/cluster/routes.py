"""Where an execution's calls go. An execution stays on its cell, because its KV cache is there; unless the
policy wants cells that serve evenly, and its cell has clearly more executions than another.

Pure: the caller says which cells serve.
"""

from collections import Counter

from opengyre.scheduler.crowd import is_crowded


class Routes:
    """Home cells of executions."""

    def __init__(self, capacity: int, *, evens_out: bool = False) -> None:
        self._capacity = capacity
        self._evens_out = evens_out
        self._home: dict[str, int] = {}
        self._load: Counter[int] = Counter()

    def choose(self, execution_id: str, serving: set[int]) -> int:
        """The execution's home if that serves, else a new home.

        A new execution goes where most capacity is free; one whose home left, to the last cell in the
        switching order that has room, where it can stay longest. Without room: where load is least. When
        cells are to serve evenly, all go where load is least, and those of a crowded home too.
        """
        home = self._home.get(execution_id)
        if home in serving and not self._crowded(home, serving):
            return home
        free = {cell: self._capacity - self._load[cell] for cell in serving}
        roomy = [cell for cell in serving if free[cell] > 0]
        if home is not None and roomy and not self._evens_out:
            chosen = max(roomy)
        else:
            chosen = max(serving, key=lambda cell: (free[cell], cell))
        self.release(execution_id)
        self._home[execution_id] = chosen
        self._load[chosen] += 1
        return chosen

    def _crowded(self, home: int, serving: set[int]) -> bool:
        if not self._evens_out:
            return False
        fewest = min(self._load[cell] for cell in serving)
        return is_crowded(self._load[home], fewest, self._capacity)

    def release(self, execution_id: str) -> None:
        """The execution takes no capacity any more."""
        home = self._home.pop(execution_id, None)
        if home is not None:
            self._load[home] -= 1

    def home(self, execution_id: str) -> int | None:
        """The execution's home, also while that does not serve."""
        return self._home.get(execution_id)

    def load(self, cell: int) -> int:
        """Executions whose home the cell is."""
        return self._load[cell]
