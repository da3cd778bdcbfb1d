"""Dense Qwen3 as plain torch: one set of weights that engine and learner both run."""
