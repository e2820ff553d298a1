"""Who runs next, and where? Policies, the queue, and a simulator to try them in."""

from trimtab.schedule.allocation import WAITING, Allocation, SchedulingPolicy
from trimtab.schedule.cluster import Cluster, Group, Market, Shape, usual_shapes
from trimtab.schedule.job import Checkpoint, DataSet, Job, Priority, Worker
from trimtab.schedule.jobs import Jobs

__all__ = [
    "WAITING",
    "Allocation",
    "Checkpoint",
    "Cluster",
    "DataSet",
    "Group",
    "Job",
    "Jobs",
    "Market",
    "Priority",
    "SchedulingPolicy",
    "Shape",
    "Worker",
    "usual_shapes",
]
