"""Samples in, next weights out: GSPO over prefix trees, micro-steps, checkpoints."""
