"""Generated task families: real Harbor folders from seeds, training and held-out disjoint."""

from opengyre.tasks.bundled.base import PERFECT, Action, Blueprint, Family, Final, Puzzle, Skill
from opengyre.tasks.bundled.draw import (
    FAMILIES,
    Split,
    capacity,
    draw,
    families,
    split_of,
    write_bundled,
)
from opengyre.tasks.bundled.folder import task_id_of, write_task

__all__ = [
    "FAMILIES",
    "PERFECT",
    "Action",
    "Blueprint",
    "Family",
    "Final",
    "Puzzle",
    "Skill",
    "Split",
    "capacity",
    "draw",
    "families",
    "split_of",
    "task_id_of",
    "write_bundled",
    "write_task",
]
