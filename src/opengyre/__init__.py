"""OpenGyre: train coding agents by online reinforcement learning through real agent programs."""

__version__ = "0.1.0"
