"""Generated task families: real Harbor folders from seeds, training and held-out disjoint."""

from opengyre.tasks.bundled.base import Action, Blueprint, Family, Final, Puzzle, Skill
from opengyre.tasks.bundled.draw import FAMILIES, capacity, draw, split_of, write_bundled
from opengyre.tasks.bundled.folder import task_id_of, write_task

__all__ = [
    "FAMILIES",
    "Action",
    "Blueprint",
    "Family",
    "Final",
    "Puzzle",
    "Skill",
    "capacity",
    "draw",
    "split_of",
    "task_id_of",
    "write_bundled",
    "write_task",
]
