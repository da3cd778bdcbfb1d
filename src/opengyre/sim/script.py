"""Executions as they took place, to be played again.

Invariant: a script fixes what an agent program does and how long that takes outside of the model; how
long its calls take is up to the cells that serve them.
"""

from msgspec import Struct
from msgspec.structs import replace


class Turn(Struct, frozen=True, array_like=True):
    """One model call. Made by app (calibration); read by the simulator."""

    wait_s: float
    """Before it: since the answer before it, or since the execution began."""
    prompt_tokens: float
    new_tokens: float
    """Of the prompt, those that no earlier call had: what a cell with its cache computes."""
    answer_tokens: float


class Script(Struct, frozen=True, kw_only=True):
    """One execution. Made by app (calibration); read by the simulator."""

    turns: tuple[Turn, ...]
    stop_s: float = 0.0
    """From the last answer (from the beginning if there is none) to the end of the program."""
    trained_tokens: float = 0.0
    """What a training cell computes for it; 0 when it gives no gradient."""


def stretched(
    groups: tuple[tuple[Script, ...], ...],
    *,
    waits: float = 1.0,
    answers: float = 1.0,
    prompts: float = 1.0,
    trained: float = 1.0,
) -> tuple[tuple[Script, ...], ...]:
    """The same executions with longer or shorter waits, answers, prompts and training."""

    def turn(of: Turn) -> Turn:
        return Turn(
            of.wait_s * waits,
            of.prompt_tokens * prompts,
            of.new_tokens * prompts,
            of.answer_tokens * answers,
        )

    def script(of: Script) -> Script:
        return replace(
            of,
            turns=tuple(turn(one) for one in of.turns),
            stop_s=of.stop_s * waits,
            trained_tokens=of.trained_tokens * trained,
        )

    return tuple(tuple(script(one) for one in group) for group in groups)
