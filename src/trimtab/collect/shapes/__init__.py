"""Training jobs measured under the CPU and memory of machine shapes."""
