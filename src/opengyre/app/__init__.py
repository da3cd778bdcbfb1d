"""Wiring: the command line, the live controller, report, benches, the only wall clock."""
