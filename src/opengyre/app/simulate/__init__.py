"""The simulator as a program: published workloads, calibration, and the table against the publication."""
