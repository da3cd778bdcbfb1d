"""Reasoning before an answer, between <think> and </think>.

Invariant: reasoning that was never closed is not taken for a closed one.
"""


def split_thinking(text: str) -> tuple[str, str, bool]:
    """(reasoning, the rest, whether the reasoning was closed or absent)."""
    if not text.lstrip().startswith("<think>"):
        return "", text, True
    inside = text.lstrip().removeprefix("<think>")
    thinking, mark, rest = inside.partition("</think>")
    return thinking.strip("\n"), rest.lstrip("\n"), bool(mark)
