"""Tests of the scheduler: a small world plays against it."""
