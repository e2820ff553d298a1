"""Job files: a workload on a configuration, written down for SkyPilot, Kubernetes, Slurm or Vertex AI."""

from trimtab.engines.jobfiles.collection import collection_files
from trimtab.engines.jobfiles.registry import job_file, targets

__all__ = ["collection_files", "job_file", "targets"]
