"""Moves weights, gradients and KV blocks between cells through shared memory."""
