"""What an evaluator wrote, read with suspicion.

Invariant: a reward that is returned is finite and inside the task's range; anything else that was
written is an EvaluatorError, never a zero.
"""

import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from opengyre.core.errors import EvaluatorError

MOST_BYTES = 1024 * 1024
"""A reward is a number and its parts."""
CRASHED = -1.0
"""What some evaluators write when they break (DeepSWE), even where the range would allow it."""


@dataclass(frozen=True)
class Reward:
    """A usable reward."""

    value: float
    parts: dict[str, float]


def read_reward(logs: Path, low: float, high: float) -> Reward | None:
    """From reward.json, else reward.txt; None when neither is there. Raises EvaluatorError."""
    for name, parse in (("reward.json", _from_json), ("reward.txt", _from_text)):
        content = read_plain(logs / name)
        if content is None:
            continue
        reward = parse(content)
        if reward.value == CRASHED or not low <= reward.value <= high:
            raise EvaluatorError(
                f"wanted a reward in [{low:g}, {high:g}]; found {reward.value:g} in {name}"
            )
        return reward
    return None


def read_plain(file: Path) -> str | None:
    """Text of a small regular file, None when there is none. Raises EvaluatorError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EvaluatorError(f"wanted a plain file {file.name}; found {error.strerror}") from error
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > MOST_BYTES:
            raise EvaluatorError(f"wanted a small plain file {file.name}; found something else")
        return os.read(descriptor, MOST_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def _from_json(content: str) -> Reward:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise EvaluatorError(f"wanted JSON in reward.json; found {content[:80]!r}") from error
    if not isinstance(found, dict) or not found:
        raise EvaluatorError(f"wanted an object in reward.json; found {content[:80]!r}")
    numbers = {str(key): _number(key, value) for key, value in found.items()}
    if len(numbers) == 1:
        return Reward(next(iter(numbers.values())), {})
    if "reward" not in numbers:
        raise EvaluatorError(f'wanted the key "reward" in reward.json; found {sorted(numbers)}')
    return Reward(numbers.pop("reward"), numbers)


def _from_text(content: str) -> Reward:
    try:
        value = float(content)
    except ValueError as error:
        raise EvaluatorError(f"wanted a number in reward.txt; found {content[:80]!r}") from error
    return Reward(_number("reward.txt", value), {})


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluatorError(f"wanted a number for {name}; found {str(value)[:80]!r}")
    try:
        number = float(value)
    except OverflowError as error:
        raise EvaluatorError(f"wanted a finite number for {name}; found a huge one") from error
    if not math.isfinite(number):
        raise EvaluatorError(f"wanted a finite number for {name}; found {number}")
    return number
