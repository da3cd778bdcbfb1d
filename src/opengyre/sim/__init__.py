"""A discrete-event world that plays cluster, harnesses and failures against the real scheduler."""
