"""The proxy room's tests."""
