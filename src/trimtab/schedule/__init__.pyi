from .allocation import WAITING as WAITING, Allocation as Allocation, SchedulingPolicy as SchedulingPolicy
from .borrowing import WithQuotas as WithQuotas
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
    Cluster as Cluster,
    Group as Group,
    Market as Market,
    Shape as Shape,
    usual_shapes as usual_shapes,
)
from .fields import require_name as require_name
from .job import (
    Checkpoint as Checkpoint,
    DataSet as DataSet,
    Job as Job,
    Priority as Priority,
    Worker as Worker,
)
from .job_file import (
    parse_jobs as parse_jobs,
    read_job_documents as read_job_documents,
    read_job_file as read_job_file,
    submissions as submissions,
)
from .jobs import Jobs as Jobs
from .kinds import kind_of as kind_of
from .locality import (
    DISTANCES as DISTANCES,
    Distance as Distance,
    Fetch as Fetch,
    Tier as Tier,
    fetch as fetch,
    tier_between as tier_between,
)
from .loop.fleet import Fleet as Fleet
from .loop.only import Post as Post, only_scheduler as only_scheduler
from .loop.places import JobFiles as JobFiles
from .loop.scheduler import NOTE as NOTE, Scheduler as Scheduler
from .loop.settings import LoopSettings as LoopSettings
from .loop.wishes import (
    Running as Running,
    cancel_job as cancel_job,
    hand_in as hand_in,
    running_scheduler as running_scheduler,
)
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
from .possible import impossible as impossible, refuse_impossible as refuse_impossible
from .quota import Quotas as Quotas, jain_index as jain_index
from .simulation.cluster_file import read_cluster as read_cluster, read_quotas as read_quotas
from .simulation.folder import find_trace as find_trace
from .simulation.replay import Replay as Replay
from .simulation.report import html_report as html_report
from .simulation.simulator import SimulationSettings as SimulationSettings, simulate as simulate
from .simulation.summaries import summary as summary, tenant_summaries as tenant_summaries
from .simulation.told_faults import ToldFaults as ToldFaults, parse_faults as parse_faults
from .simulation.worlds import (
    Scene as Scene,
    refuse_beyond_quotas as refuse_beyond_quotas,
    scene_of as scene_of,
)
from .submission import Submission as Submission, submission_of as submission_of
from .traces.registry import read_trace as read_trace, read_traces as read_traces
from .traces.trace import ANY_KIND as ANY_KIND, Trace as Trace
