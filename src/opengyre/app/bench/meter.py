"""CPU seconds of cells by the role they had, read from /proc whenever a role changes.

Invariant: all CPU time that a cell's process takes between start and the last reading is booked
under exactly one role.
"""

import os
from collections.abc import Callable
from pathlib import Path

from opengyre.core.reasons import CellRole

TICKS = os.sysconf("SC_CLK_TCK")
"""Of /proc/PID/stat, a second."""


class CellMeter:
    """cpu: a cell's CPU seconds until now."""

    def __init__(self, cpu: Callable[[int], float], roles: dict[int, CellRole]) -> None:
        self._cpu = cpu
        self._roles = dict(roles)
        self._read = {cell: cpu(cell) for cell in roles}
        self.seconds = dict.fromkeys(CellRole, 0.0)
        """Of all cells, by role."""

    def roles(self, roles: dict[int, CellRole]) -> None:
        """Book what was used so far if any role is new."""
        if roles != self._roles:
            self.read()
            self._roles = dict(roles)

    def read(self) -> None:
        """Book what was used since the last reading under the roles until now."""
        for cell, role in self._roles.items():
            now = self._cpu(cell)
            self.seconds[role] += max(0.0, now - self._read[cell])  # a new process starts at 0
            self._read[cell] = now


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 for one that is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
