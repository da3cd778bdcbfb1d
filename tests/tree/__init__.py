"""Tests of the trajectory processor."""
