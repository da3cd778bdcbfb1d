"""Task folders in, verdicts out: loading, workspaces, evaluators, bundled tasks."""
