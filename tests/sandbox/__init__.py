"""Properties of the sandbox room."""
