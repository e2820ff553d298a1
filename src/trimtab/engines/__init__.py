"""Where does it run? On this machine, or by files that start a workload with a tool you already use."""

from trimtab.engines.engine import ENGINES, engine
from trimtab.engines.jobfiles import job_file, targets
from trimtab.engines.local import LocalEngine

__all__ = ["ENGINES", "LocalEngine", "engine", "job_file", "targets"]
