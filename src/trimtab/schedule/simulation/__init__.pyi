from .cluster_file import read_cluster as read_cluster, read_quotas as read_quotas
from .faults import FaultRates as FaultRates, RandomFaults as RandomFaults
from .folder import find_trace as find_trace
from .replay import Replay as Replay, Segment as Segment
from .report import html_report as html_report
from .simulator import SimulationSettings as SimulationSettings, simulate as simulate
from .summaries import (
    TenantSummary as TenantSummary,
    summary as summary,
    tenant_summaries as tenant_summaries,
)
from .tabular import TabularWorld as TabularWorld
from .told_faults import ToldFaults as ToldFaults, parse_faults as parse_faults
from .world import Look as Look, World as World
from .worlds import Scene as Scene, refuse_beyond_quotas as refuse_beyond_quotas, scene_of as scene_of
