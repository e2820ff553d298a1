"""Training jobs: run time by configuration, and remaining durations."""
