"""Who runs next, and where? Policies, the queue, and a simulator to try them in."""

from trimtab.schedule.allocation import WAITING, Allocation, SchedulingPolicy
from trimtab.schedule.borrowing import WithQuotas
from trimtab.schedule.checkpointing import (
    NODE_LOSSES,
    ExpectedRun,
    Refuge,
    efficiency,
    expected_run,
    gang_rate,
    latest_switch,
    must_leave_spot,
)
from trimtab.schedule.cluster import Cluster, Group, Market, Shape, usual_shapes
from trimtab.schedule.fields import require_name
from trimtab.schedule.job import Checkpoint, DataSet, Job, Priority, Worker
from trimtab.schedule.job_file import parse_jobs, read_job_documents, read_job_file, submissions
from trimtab.schedule.jobs import Jobs
from trimtab.schedule.kinds import kind_of
from trimtab.schedule.locality import DISTANCES, Distance, Fetch, Tier, fetch, tier_between
from trimtab.schedule.loop import (
    NOTE,
    Fleet,
    JobFiles,
    LoopSettings,
    Post,
    Running,
    Scheduler,
    cancel_job,
    hand_in,
    only_scheduler,
    running_scheduler,
)
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
from trimtab.schedule.policies import POLICIES, policy
from trimtab.schedule.possible import impossible, refuse_impossible
from trimtab.schedule.quota import Quotas, jain_index
from trimtab.schedule.submission import Submission, submission_of
from trimtab.schedule.traces import ANY_KIND, Trace, read_trace, read_traces

__all__ = [
    "ANY_KIND",
    "CPU_OVERCOMMIT",
    "DISTANCES",
    "MEMORY_OVERCOMMIT",
    "NODE_LOSSES",
    "NOTE",
    "POLICIES",
    "WAITING",
    "Allocation",
    "Checkpoint",
    "Cluster",
    "DataSet",
    "Distance",
    "ExpectedRun",
    "Fetch",
    "Fleet",
    "Group",
    "Job",
    "JobFiles",
    "Jobs",
    "LoopSettings",
    "Market",
    "Occupant",
    "Overcommit",
    "Post",
    "Priority",
    "Quotas",
    "Reclaimed",
    "Refuge",
    "Running",
    "Scheduler",
    "SchedulingPolicy",
    "Shape",
    "Submission",
    "Tier",
    "Trace",
    "WithQuotas",
    "Worker",
    "cancel_job",
    "common_peak",
    "efficiency",
    "excess_use",
    "expected_run",
    "fetch",
    "gang_rate",
    "hand_in",
    "impossible",
    "jain_index",
    "kind_of",
    "latest_switch",
    "must_leave_spot",
    "only_scheduler",
    "parse_jobs",
    "policy",
    "promisable",
    "read_job_documents",
    "read_job_file",
    "read_trace",
    "read_traces",
    "reclaim",
    "refuse_impossible",
    "require_name",
    "running_scheduler",
    "submission_of",
    "submissions",
    "tier_between",
    "usual_shapes",
]
