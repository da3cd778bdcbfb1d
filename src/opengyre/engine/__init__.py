"""Makes tokens: the embedded torch engine."""
