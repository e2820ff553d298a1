"""The scheduler at work: jobs from the store, a policy's decisions, an engine that carries them out."""
