"""API dialects: each one says the same conversation in its own words."""
