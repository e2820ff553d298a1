"""What would a policy do with this trace? A deterministic cluster to try it in."""

from collections.abc import Mapping

from trimtab.schedule.simulate.cluster_file import read_cluster, read_quotas
from trimtab.schedule.simulate.faults import FaultRates, RandomFaults
from trimtab.schedule.simulate.folder import find_trace
from trimtab.schedule.simulate.replay import Replay, Segment
from trimtab.schedule.simulate.simulator import SimulationSettings, simulate
from trimtab.schedule.simulate.summary import TenantSummary, summary, tenant_summaries
from trimtab.schedule.simulate.tabular import TabularWorld
from trimtab.schedule.simulate.told_faults import ToldFaults, parse_faults
from trimtab.schedule.simulate.world import Look, World
from trimtab.schedule.simulate.worlds import Scene, refuse_beyond_quotas, scene_of

__all__ = [
    "FaultRates",
    "Look",
    "RandomFaults",
    "Replay",
    "Scene",
    "Segment",
    "SimulationSettings",
    "TabularWorld",
    "TenantSummary",
    "ToldFaults",
    "World",
    "find_trace",
    "html_report",
    "parse_faults",
    "read_cluster",
    "read_quotas",
    "refuse_beyond_quotas",
    "scene_of",
    "simulate",
    "summary",
    "tenant_summaries",
]


def html_report(scene: Scene, replays: Mapping[str, Replay]) -> str:
    """Simulations of one trace, by policy, as one HTML page; only this needs Plotly."""
    from trimtab.schedule.simulate.report import report

    return report(scene, replays)
