"""Cells as processes on one machine: routes, role switches, calls moved alive."""
