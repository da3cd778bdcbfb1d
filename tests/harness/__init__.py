"""Properties of the harness room."""
