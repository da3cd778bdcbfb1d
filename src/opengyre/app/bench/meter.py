"""CPU seconds of cells by the role they had, read from /proc whenever a role changes.

Invariant: all CPU time that a cell took between start and stop is booked under exactly one role.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from opengyre.core.reasons import CellRole

TICKS = os.sysconf("SC_CLK_TCK")
"""Of /proc/PID/stat, a second."""
PROC = Path("/proc")


@dataclass
class CellMeter:
    """Books CPU time of the cells of the run in a folder."""

    run: Path
    seconds: dict[CellRole, float] = field(default_factory=dict)
    """CPU seconds of all cells by role."""
    _roles: dict[int, CellRole] = field(default_factory=dict)
    _read: dict[int, float] = field(default_factory=dict)
    """CPU seconds at the last reading, by process id."""

    def start(self, roles: dict[int, CellRole]) -> None:
        """Count from now."""
        self._roles = dict(roles)
        self._read = {pid: cpu_seconds(pid) for pid in cells_of(self.run)}

    def roles(self, roles: dict[int, CellRole]) -> None:
        """Book what was used so far if any role is new."""
        if roles != self._roles:
            self.read()
            self._roles = dict(roles)

    def read(self) -> None:
        """Book what was used since the last reading under the roles until now."""
        for pid, cell in cells_of(self.run).items():
            now = cpu_seconds(pid)
            role = self._roles[cell]
            used = now - self._read.get(pid, 0.0)
            self.seconds[role] = self.seconds.get(role, 0.0) + used
            self._read[pid] = now


def cells_of(run: Path) -> dict[int, int]:
    """Cell by process id: a cell's output goes to cells/cell-N.log of its run."""
    found = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            log = (entry / "fd" / "1").readlink()
        except OSError:
            continue  # gone, or somebody else's
        if log.parent == run / "cells":
            found[int(entry.name)] = int(log.stem.removeprefix("cell-"))
    return found


def cpu_seconds(pid: int) -> float:
    """User and system time of a process; 0 for one that is gone."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
