from .jobfiles.kubernetes import DEVICE_RESOURCES as DEVICE_RESOURCES
from .jobfiles.targets import collection_files as collection_files, job_file as job_file, targets as targets
from .kubernetes.api import (
    KubernetesError as KubernetesError,
    ObjectWatch as ObjectWatch,
    call_api as call_api,
    core_api as core_api,
)
from .kubernetes.engine import KubernetesEngine as KubernetesEngine
from .local.engine import LocalEngine as LocalEngine
from .ray.engine import RayEngine as RayEngine
from .registry import ENGINES as ENGINES, engine as engine
from .slurm.engine import SlurmEngine as SlurmEngine
