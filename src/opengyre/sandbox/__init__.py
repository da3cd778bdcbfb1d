"""Runs an untrusted command: bubblewrap, limits, and death with its process group."""
