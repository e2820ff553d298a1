"""Who runs next, and where? Policies, the queue, and a simulator to try them in."""

from trimtab.schedule.allocation import WAITING, Allocation, SchedulingPolicy
from trimtab.schedule.checkpointing import (
    NODE_LOSSES,
    ExpectedRun,
    Refuge,
    daly_interval,
    efficiency,
    expected_run,
    gang_rate,
    latest_switch,
    must_leave_spot,
    young_interval,
)
from trimtab.schedule.cluster import Cluster, Group, Market, Shape, usual_shapes
from trimtab.schedule.job import Checkpoint, DataSet, Job, Priority, Worker
from trimtab.schedule.job_file import parse_jobs, read_job_file
from trimtab.schedule.jobs import Jobs
from trimtab.schedule.locality import DISTANCES, Distance, Fetch, Tier, fetch, tier_between
from trimtab.schedule.overcommit import (
    CPU_OVERCOMMIT,
    MEMORY_OVERCOMMIT,
    Occupant,
    Overcommit,
    Reclaimed,
    common_peak,
    excess_use,
    promisable,
    reclaim,
)
from trimtab.schedule.submission import Submission, submission_of
from trimtab.schedule.traces import ANY_KIND, Trace, read_trace, read_traces

__all__ = [
    "ANY_KIND",
    "CPU_OVERCOMMIT",
    "DISTANCES",
    "MEMORY_OVERCOMMIT",
    "NODE_LOSSES",
    "WAITING",
    "Allocation",
    "Checkpoint",
    "Cluster",
    "DataSet",
    "Distance",
    "ExpectedRun",
    "Fetch",
    "Group",
    "Job",
    "Jobs",
    "Market",
    "Occupant",
    "Overcommit",
    "Priority",
    "Reclaimed",
    "Refuge",
    "SchedulingPolicy",
    "Shape",
    "Submission",
    "Tier",
    "Trace",
    "Worker",
    "common_peak",
    "daly_interval",
    "efficiency",
    "excess_use",
    "expected_run",
    "fetch",
    "gang_rate",
    "latest_switch",
    "must_leave_spot",
    "parse_jobs",
    "promisable",
    "read_job_file",
    "read_trace",
    "read_traces",
    "reclaim",
    "submission_of",
    "tier_between",
    "usual_shapes",
    "young_interval",
]
