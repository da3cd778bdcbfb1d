"""Recording without training: any agent program, through the proxy, against a model that is served."""
