"""Who runs next, and where? Policies, the queue, and a simulator to try them in."""

from trimtab.schedule.allocation import WAITING, Allocation, SchedulingPolicy
from trimtab.schedule.checkpointing import (
    NODE_LOSSES,
    Expected,
    Refuge,
    daly_interval,
    efficiency,
    expected,
    gang_rate,
    latest_switch,
    must_leave_spot,
    young_interval,
)
from trimtab.schedule.cluster import Cluster, Group, Market, Shape, usual_shapes
from trimtab.schedule.job import Checkpoint, DataSet, Job, Priority, Worker
from trimtab.schedule.jobs import Jobs

__all__ = [
    "NODE_LOSSES",
    "WAITING",
    "Allocation",
    "Checkpoint",
    "Cluster",
    "DataSet",
    "Expected",
    "Group",
    "Job",
    "Jobs",
    "Market",
    "Priority",
    "Refuge",
    "SchedulingPolicy",
    "Shape",
    "Worker",
    "daly_interval",
    "efficiency",
    "expected",
    "gang_rate",
    "latest_switch",
    "must_leave_spot",
    "usual_shapes",
    "young_interval",
]
