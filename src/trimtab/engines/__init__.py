"""Where does it run? For now: files that start a workload on a configuration with a tool you already use."""

from trimtab.engines.jobfiles import job_file, targets

__all__ = ["job_file", "targets"]
