from .allocation import (
    WAITING as WAITING,
    Allocation as Allocation,
    JobColumns as JobColumns,
    SchedulingPolicy as SchedulingPolicy,
)
from .checkpointing import (
    NODE_LOSSES as NODE_LOSSES,
    ExpectedRun as ExpectedRun,
    Refuge as Refuge,
    efficiency as efficiency,
    expected_run as expected_run,
    gang_rate as gang_rate,
    latest_switch as latest_switch,
    must_leave_spot as must_leave_spot,
)
from .cluster import (
    DISTANCES as DISTANCES,
    Cluster as Cluster,
    Distance as Distance,
    Fetch as Fetch,
    GangShape as GangShape,
    Market as Market,
    NodeGroup as NodeGroup,
    Tier as Tier,
    fetch as fetch,
    impossible as impossible,
    refuse_impossible as refuse_impossible,
    tier_between as tier_between,
    usual_shapes as usual_shapes,
)
from .job import (
    Checkpoint as Checkpoint,
    Job as Job,
    JobData as JobData,
    Priority as Priority,
    Submission as Submission,
    Worker as Worker,
    kind_of as kind_of,
    submission_of as submission_of,
)
from .job_file import (
    JobDocument as JobDocument,
    read_job_documents as read_job_documents,
    require_name as require_name,
    submissions as submissions,
)
from .loop.journal import JobFolder as JobFolder
from .loop.requests import (
    NOTE as NOTE,
    SchedulerStatus as SchedulerStatus,
    cancel_job as cancel_job,
    running_scheduler as running_scheduler,
    submit_jobs as submit_jobs,
)
from .loop.runs import (
    LoopSettings as LoopSettings,
)
from .loop.scheduler import (
    Scheduler as Scheduler,
    SchedulerLeadership as SchedulerLeadership,
    only_scheduler as only_scheduler,
)
from .loop.view import Fleet as Fleet
from .overcommit import (
    CPU_OVERCOMMIT as CPU_OVERCOMMIT,
    MEMORY_OVERCOMMIT as MEMORY_OVERCOMMIT,
    Occupant as Occupant,
    Overcommit as Overcommit,
    Reclaimed as Reclaimed,
    common_peak as common_peak,
    excess_use as excess_use,
    promisable as promisable,
    reclaim as reclaim,
)
from .policies import POLICIES as POLICIES, policy as policy
from .quota import Quotas as Quotas, WithQuotas as WithQuotas, jain_index as jain_index
from .simulation.faults import FaultSettings as FaultSettings, parse_faults as parse_faults
from .simulation.replay import Replay as Replay, summary as summary, tenant_summaries as tenant_summaries
from .simulation.report import html_report as html_report
from .simulation.scene import (
    Scene as Scene,
    find_trace as find_trace,
    read_cluster as read_cluster,
    read_quotas as read_quotas,
    refuse_beyond_quotas as refuse_beyond_quotas,
    scene_of as scene_of,
)
from .simulation.simulator import SimulationSettings as SimulationSettings, simulate as simulate
from .traces.registry import read_trace as read_trace, read_traces as read_traces
from .traces.table import ANY_KIND as ANY_KIND, Trace as Trace
