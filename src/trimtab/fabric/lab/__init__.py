"""A network of namespaces on one machine in which faults are injected."""
