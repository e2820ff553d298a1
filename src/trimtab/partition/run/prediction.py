"""What a step should take on this machine, by what was measured on it."""

from dataclasses import replace

import numpy as np

from trimtab.partition.cost.assumptions import Assumptions
from trimtab.partition.cost.evaluate import evaluate
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Plan, Recipe, Stage
from trimtab.partition.run.links import Link
from trimtab.partition.run.report import RunReport
from trimtab.partition.told_devices import devices_of
from trimtab.predict import ScaleOutAssumptions


def predicted_here(graph: Graph, plan: Plan, recipe: Recipe, ran: RunReport, link: Link) -> float:
    """Seconds of a step of local processes, from the whole model's two passes alone and the link's own speed.

    Of the run itself only those two passes count, which one process computed without the plan. Arithmetic is
    fp32, as in a run.
    """
    count = 1 + max(device for device, _, _ in plan.devices())
    devices = _local_devices(count, ran.threads, link)
    whole = Plan((Stage(tuple(range(len(graph))), ((0,),)),), plan.shares[:1], 1)
    alone = evaluate(graph, devices, Recipe(whole.batch), whole)
    ahead = ran.whole_forward / alone.stage_forward[0]
    back = ran.whole_backward / alone.stage_backward[0]
    links = ScaleOutAssumptions(link_efficiency=1.0)  # the link was measured as it is
    assume = Assumptions(correction=(("cpu", ahead, back),), links=links, overlapped=False)
    return evaluate(graph, devices, replace(recipe, precision="fp32"), plan, assume).seconds


def _local_devices(count: int, threads: int, link: Link) -> Devices:
    """Processes of this machine, joined by what a message between two of them takes."""
    devices = devices_of(f"cpu:{count}x{threads}")
    apart = ~np.eye(count, dtype=bool)
    return replace(
        devices,
        bandwidth=np.where(apart, link.bandwidth, np.inf),
        latency=np.where(apart, link.latency, 0.0),
    )
