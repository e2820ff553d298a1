"""Keeps the data plane (which MAC is at which host) equal to the control plane."""
