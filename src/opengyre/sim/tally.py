"""What a simulation counts while it runs."""

from dataclasses import dataclass


@dataclass
class Tally:
    """Totals over a whole simulation."""

    executions: int = 0
    truncated: int = 0
    """Ended by the harness timeout."""
    excluded: int = 0
    moved_with_kv: int = 0
    """Calls that changed their cell in mid-generation with their KV cache."""
    recomputed: int = 0
    """The same without."""
    held_calls: int = 0
    """Calls that waited because no cell served them or their KV cache was on its way."""
    held_s: float = 0.0
    prefilled_tokens: float = 0.0
    """Prompt tokens computed, again ones included."""
    sampled_tokens: float = 0.0
    trained_tokens: float = 0.0
    cells_lost: int = 0
