"""Equal tenants on the Philly jobs: four, of whom one sends three times as much as each other, in bursts.

Two measures, Jain's index of each over the tenants. `jain` is of the part of its jobs' lives in which a
tenant was served; it is even also where everybody waits alike. `jain_shares` is of what a tenant held over
what it was entitled to: at every moment accelerators are divided max-min over what tenants ask for, so that
nobody is owed more than it can use, and what one leaves is the others'.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trimtab.schedule import jain_index
from trimtab.schedule.simulation.replay import Replay, summary
from trimtab_bench.schedule.stage import Stage, draws

POLICIES = ("trimtab", "drf", "maxmin:over=tenants", "fifo")
TENANTS = ("bursts", "a", "b", "c")
_SENT = (0.5, 1 / 6, 1 / 6, 1 / 6)
_BURSTS = 4 * 3600.0  # seconds from one to the next
_EVERY = 300.0  # seconds between looks

Floats = NDArray[np.float64]


def tenant_figures(stage: Stage, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """By policy: both indices, and hours to completion of those who send little, and of the one in bursts."""
    owner = draws(seed, "tenants").choice(TENANTS, len(stage.jobs), p=_SENT)
    jobs = [
        replace(
            job,
            workload=replace(job.workload, tenant=str(name)),
            submitted=job.submitted // _BURSTS * _BURSTS if name == TENANTS[0] else job.submitted,
        )
        for job, name in zip(stage.jobs, owner, strict=True)
    ]
    asked = replace(stage, jobs=tuple(sorted(jobs, key=lambda job: job.submitted)))
    figures = {}
    for name in names:
        replay = asked.run(name)
        bursts = np.array([job.workload.tenant == TENANTS[0] for job in asked.jobs])
        hours = (replay.ended - replay.submitted) / 3600.0
        figures[name] = {
            "jain": summary(replay)["jain"],
            "jain_shares": jain_index(had_of_entitled(replay)),
            "others_h": float(hours[~bursts].mean()),
            "bursts_h": float(hours[bursts].mean()),
        }
    return figures


def had_of_entitled(replay: Replay) -> Floats:
    """For each tenant what it held, no more than it was entitled to, over that; 1 if it never asked."""
    moments = np.arange(0.0, replay.makespan, _EVERY) + replay.submitted[0]
    gpus = np.array([job.least * job.worker.gpus for job in replay.jobs])
    asked = _over_time(moments, replay.tenant, replay.submitted, replay.ended, gpus, len(replay.tenants))
    rows = np.array([segment.job for segment in replay.segments])
    start, end = (np.array([getattr(s, side) for s in replay.segments]) for side in ("start", "end"))
    held = _over_time(moments, replay.tenant[rows], start, end, gpus[rows], len(replay.tenants))
    entitled = _divided(asked, float(replay.cluster.capacity[:, 0].sum()))
    due = entitled.sum(axis=0)
    return np.where(due > 0, np.minimum(held, entitled).sum(axis=0) / np.maximum(due, 1e-9), 1.0)


def _over_time(
    moments: Floats, tenant: NDArray[np.int64], start: Floats, end: Floats, gpus: Floats, tenants: int
) -> Floats:
    """(moments, tenants): accelerators of whatever has started and not ended."""
    change = np.zeros((len(moments) + 1, tenants))
    np.add.at(change, (np.searchsorted(moments, start), tenant), gpus)
    np.add.at(change, (np.searchsorted(moments, end), tenant), -gpus)
    summed: Floats = np.cumsum(change, axis=0)[:-1]
    return summed


def _divided(asked: Floats, capacity: float) -> Floats:
    """Max-min shares of the capacity, row by row: who asks for least is served first."""
    entitled = np.zeros_like(asked)
    left = np.full(len(asked), capacity)
    order = np.argsort(asked, axis=1)
    rows = np.arange(len(asked))
    for place in range(asked.shape[1]):
        column = order[:, place]
        entitled[rows, column] = np.minimum(asked[rows, column], left / (asked.shape[1] - place))
        left -= entitled[rows, column]
    return entitled
