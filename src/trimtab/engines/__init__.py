"""Where does it run? On this machine, on a cluster, or by files for a tool you already use."""

from trimtab.engines.engine import ENGINES, engine
from trimtab.engines.jobfiles import collection_files, job_file, targets
from trimtab.engines.jobfiles.kubernetes import DEVICE_RESOURCES
from trimtab.engines.kubernetes import KubernetesEngine
from trimtab.engines.kubernetes_api import KubernetesError, called, core_api
from trimtab.engines.kubernetes_watch import ObjectWatch
from trimtab.engines.launch import launch_of
from trimtab.engines.local import LocalEngine
from trimtab.engines.ray import RayEngine
from trimtab.engines.slurm import SlurmEngine

__all__ = [
    "DEVICE_RESOURCES",
    "ENGINES",
    "KubernetesEngine",
    "KubernetesError",
    "LocalEngine",
    "ObjectWatch",
    "RayEngine",
    "SlurmEngine",
    "called",
    "collection_files",
    "core_api",
    "engine",
    "job_file",
    "launch_of",
    "targets",
]
