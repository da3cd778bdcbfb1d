"""Starts unmodified agent programs in a sandbox, watches their limits, preserves what they made."""
