from .jobfiles.collection import collection_files as collection_files
from .jobfiles.kubernetes import DEVICE_RESOURCES as DEVICE_RESOURCES
from .jobfiles.registry import job_file as job_file, targets as targets
from .kubernetes import KubernetesEngine as KubernetesEngine
from .kubernetes_api import KubernetesError as KubernetesError, called as called, core_api as core_api
from .kubernetes_watch import ObjectWatch as ObjectWatch
from .launch import launch_of as launch_of
from .local import LocalEngine as LocalEngine
from .ray import RayEngine as RayEngine
from .registry import ENGINES as ENGINES, engine as engine
from .slurm import SlurmEngine as SlurmEngine
