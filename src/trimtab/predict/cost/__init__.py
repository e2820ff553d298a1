"""Cost model: seconds and bytes of an operation, a step or a job on any device."""
