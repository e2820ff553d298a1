"""Where does it run? On this machine, on a cluster, or by files for a tool you already use."""

from trimtab.engines.engine import ENGINES, engine
from trimtab.engines.jobfiles import job_file, targets
from trimtab.engines.launch import launch_of
from trimtab.engines.local import LocalEngine

__all__ = ["ENGINES", "LocalEngine", "engine", "job_file", "launch_of", "targets"]
