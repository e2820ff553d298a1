"""Job files: a workload on a configuration, written down for SkyPilot, Kubernetes, Slurm or Vertex AI."""
