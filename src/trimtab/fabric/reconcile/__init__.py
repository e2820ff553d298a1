"""Is the data plane what the control plane says? Which MAC is at which host, whatever gets lost."""
