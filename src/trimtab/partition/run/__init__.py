"""Training with a plan: stages as processes, compared with the whole model."""
