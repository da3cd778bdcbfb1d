"""Counter-based random numbers: token i of a call is drawn by a number that depends on the call's
seed and i alone, so neither batching nor a move to another cell changes it.
"""

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
"""Increment of splitmix64 (Steele, Lea, Flood 2014): 2^64 divided by the golden ratio."""
MANTISSA_BITS = 53
"""Of a float: more bits would round up to 1."""


def uniform(seed: int, index: int) -> float:
    """In [0, 1), for any integers."""
    bits = _mix((_mix(seed & MASK) + (index + 1) * GOLDEN) & MASK)
    return float((bits >> (64 - MANTISSA_BITS)) * 2.0**-MANTISSA_BITS)


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)
