"""Promises on Microsoft's Philly jobs: deadlines, priorities, equal tenants, wrong estimates, spot nodes.

The busiest jobs of the trace in a row, on as many nodes as they load to a given share. Every section draws
what the trace does not say (deadlines, priorities, tenants) from one seed, the same for every policy.

*Deadlines*: every job's is its duration times 1.5 to 5, and ten minutes, after submission; half of them are
hard. Feasible are those that an admission test admits when all are hard (earliest deadline first, planning
each new job with all admitted before) and then meets. The set is fixed before any policy is scored, so no
policy gains by refusing: a feasible job that is refused, or late, is missed, and jobs that are not feasible
still come and compete.

*Priorities*: one job in five has high priority. How much sooner those end than under first come, first
served depends on the waiting there: `bound` is reached by a policy under which they never wait. So there is a
busier cluster too.

*Tenants*: four equal ones, one of which sends three times as much as each other, in bursts. Two Jain indices
over the tenants: `jain` of the share of its jobs' lives in which a tenant was served (even where all wait
alike), `jain_shares` of the accelerators held over those entitled to: at every moment they are divided
max-min over the demands, so no tenant is owed more than it can use.

*Beliefs*: estimates of jobs' work are wrong by up to a factor of 2.

*Spot*: deadlines are soft, duration times 3 to 8 and half an hour; once with nodes on demand only, once with
as many spot nodes in addition, which are reclaimed once in twenty hours on average and replaced ten minutes
later.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from trimtab.core import Workload
from trimtab.schedule import (
    Checkpoint,
    Cluster,
    GangShape,
    Job,
    Market,
    NodeGroup,
    Priority,
    jain_index,
    policy,
)
from trimtab.schedule.simulation.faults import FaultRates, RandomFaults
from trimtab.schedule.simulation.replay import Replay, summary
from trimtab.schedule.simulation.simulator import SimulationSettings, simulate
from trimtab.schedule.simulation.tabular import TabularWorld

Floats = NDArray[np.float64]

JOBS, QUICK_JOBS = 1000, 150
LOAD, QUICK_LOAD = 0.75, 4.0
"""Work that arrives per second over accelerators; with less, a few jobs end before queues build up."""
_LARGEST = 16  # accelerators
_SHORTEST, _LONGEST = 60.0, 12 * 3600.0
_SECONDS_PER_JOB = 36 * 3600.0 / JOBS  # at least: the very busiest hour is one sweep of single accelerators
_NODE = NodeGroup("nodes", "v100", 1, 8, 64.0, 512e9)
_SAVING = Checkpoint(seconds=30.0, restart=30.0)
_ROUND = 60.0


@dataclass(frozen=True, slots=True)
class PhillyJobs:
    """Jobs and their nodes. A job has as much work as it has accelerators, times seconds."""

    jobs: tuple[Job, ...]
    groups: tuple[NodeGroup, ...]

    def loaded(self, times: float) -> "PhillyJobs":
        """A copy with fewer nodes, loaded so many times as much."""
        groups = tuple(replace(group, nodes=ceil(group.nodes / times)) for group in self.groups)
        return replace(self, groups=groups)

    def run(
        self, name: str, faults: RandomFaults | None = None, wrong: Sequence[float] | None = None
    ) -> Replay:
        """A policy's rounds of 60 s; `wrong` is by how much it is mistaken about each job's work."""
        sizes = sorted({job.least for job in self.jobs})
        shapes = tuple(GangShape(group, size) for group in range(len(self.groups)) for size in sizes)
        cluster = Cluster(self.groups, shapes)
        rates: dict[Hashable, Floats] = {
            size: np.where(cluster.shape_workers == size, float(size), 0.0) for size in sizes
        }
        work = np.array([job.work for job in self.jobs], dtype=float)
        believed = None if wrong is None else work * np.asarray(wrong)
        world = TabularWorld(self.jobs, cluster, [job.least for job in self.jobs], rates, work, believed)
        return simulate(self.jobs, cluster, world, policy(name), SimulationSettings(_ROUND), faults)


def busiest(trace: Sequence[Job], count: int, load: float) -> PhillyJobs:
    """The consecutive jobs with most work per second, on as many nodes as they load to `load`."""
    usual = [j for j in trace if j.least <= _LARGEST and _SHORTEST <= duration(j) <= _LONGEST]
    submitted = np.array([job.submitted for job in usual])
    total = np.concatenate(([0.0], np.cumsum([job.work for job in usual])))
    seconds = submitted[count - 1 :] - submitted[: len(usual) - count + 1]
    brought = np.where(seconds >= _SECONDS_PER_JOB * count, (total[count:] - total[:-count]) / seconds, 0.0)
    first = int(brought.argmax())
    jobs = tuple(
        replace(
            job, workload=Workload(job.id), submitted=job.submitted - submitted[first], checkpoint=_SAVING
        )
        for job in usual[first : first + count]
    )
    return PhillyJobs(jobs, (replace(_NODE, nodes=ceil(brought[first] / load / _NODE.gpus)),))


def duration(job: Job) -> float:
    """Seconds that a job of the trace took."""
    return (job.work or 0.0) / job.least


def draws(seed: int, section: str) -> np.random.Generator:
    """Random generator of one section: the same for every policy."""
    return np.random.default_rng((seed, *section.encode()))


DEADLINE_POLICIES = ("trimtab", "edf", "srtf", "fifo")
_DEADLINE_SPARE = 600.0
_DEADLINE_FACTORS = (1.5, 5.0)


def deadline_figures(stage: PhillyJobs, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """By policy: the share met of feasible deadlines and of all, and how many jobs were refused."""
    requested = with_deadlines(stage, seed, _DEADLINE_FACTORS, _DEADLINE_SPARE)
    admitted = replace(requested, jobs=tuple(replace(job, hard=True) for job in requested.jobs)).run("edf")
    feasible = admitted.ended <= admitted.deadline
    half = draws(seed, "hard").permutation(len(requested.jobs)) < len(requested.jobs) // 2
    jobs = tuple(replace(job, hard=bool(hard)) for job, hard in zip(requested.jobs, half, strict=True))
    figures = {}
    for name in names:
        replay = replace(requested, jobs=jobs).run(name)
        in_time = replay.ended <= replay.deadline
        figures[name] = {
            "feasible": float(feasible.mean()),
            "feasible_met": float(in_time[feasible].mean()),
            "met": float(in_time.mean()),
            "refused": float(replay.refused.sum()),
            "avg_jct_h": float(replay.completion.mean()) / 3600.0,
        }
    return figures


def with_deadlines(stage: PhillyJobs, seed: int, factors: tuple[float, float], spare: float) -> PhillyJobs:
    """Soft deadlines: `spare` seconds and the duration times a random number between two factors."""
    drawn = draws(seed, "deadlines").uniform(*factors, len(stage.jobs))
    jobs = tuple(
        replace(job, workload=replace(job.workload, deadline=float(duration(job) * factor + spare)))
        for job, factor in zip(stage.jobs, drawn, strict=True)
    )
    return replace(stage, jobs=jobs)


PRIORITY_POLICIES = ("trimtab", "priority", "fifo")
BUSIER = 1.2
"""How many times the load of the other sections the busier cluster has."""
_HIGH = 0.2


def priority_figures(stage: PhillyJobs, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """By policy: hours to completion of high-priority jobs and of all; `shorter` than first come by so much.

    First come, first served, which knows no priorities, must be among the names.
    """
    high = draws(seed, "priorities").random(len(stage.jobs)) < _HIGH
    jobs = tuple(
        replace(job, workload=replace(job.workload, priority=int(Priority.HIGH))) if first else job
        for job, first in zip(stage.jobs, high, strict=True)
    )
    figures = {}
    for name in names:
        replay = replace(stage, jobs=jobs).run(name)
        hours = (replay.ended - replay.submitted) / 3600.0
        figures[name] = {"high_h": float(hours[high].mean()), "avg_jct_h": float(hours.mean())}
    fifo = figures["fifo"]["high_h"]
    alone = [duration(job) / 3600.0 for job, first in zip(jobs, high, strict=True) if first]
    for result in figures.values():
        result["shorter"] = 1.0 - result["high_h"] / fifo
        result["bound"] = 1.0 - sum(alone) / len(alone) / fifo
    return figures


TENANT_POLICIES = ("trimtab", "drf", "maxmin:over=tenants", "fifo")
TENANTS = ("bursts", "a", "b", "c")
_SENT = (0.5, 1 / 6, 1 / 6, 1 / 6)
_BURSTS = 4 * 3600.0  # seconds from one to the next
_EVERY = 300.0  # seconds between looks


def tenant_figures(stage: PhillyJobs, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """By policy: both indices, and hours to completion of the small tenants and of the one with bursts."""
    owner = draws(seed, "tenants").choice(TENANTS, len(stage.jobs), p=_SENT)
    jobs = [
        replace(
            job,
            workload=replace(job.workload, tenant=str(name)),
            submitted=job.submitted // _BURSTS * _BURSTS if name == TENANTS[0] else job.submitted,
        )
        for job, name in zip(stage.jobs, owner, strict=True)
    ]
    requested = replace(stage, jobs=tuple(sorted(jobs, key=lambda job: job.submitted)))
    figures = {}
    for name in names:
        replay = requested.run(name)
        bursts = np.array([job.workload.tenant == TENANTS[0] for job in requested.jobs])
        hours = (replay.ended - replay.submitted) / 3600.0
        figures[name] = {
            "jain": summary(replay)["jain"],
            "jain_shares": jain_index(had_of_entitled(replay)),
            "others_h": float(hours[~bursts].mean()),
            "bursts_h": float(hours[bursts].mean()),
        }
    return figures


def had_of_entitled(replay: Replay) -> Floats:
    """Share of its entitled accelerators that each tenant held, at most 1; 1 if it never asked."""
    moments = np.arange(0.0, replay.makespan, _EVERY) + replay.submitted[0]
    gpus = np.array([job.least * job.worker.gpus for job in replay.jobs])
    requested = _over_time(moments, replay.tenant, replay.submitted, replay.ended, gpus, len(replay.tenants))
    rows = np.array([segment.job for segment in replay.segments])
    start, end = (np.array([getattr(s, side) for s in replay.segments]) for side in ("start", "end"))
    held = _over_time(moments, replay.tenant[rows], start, end, gpus[rows], len(replay.tenants))
    entitled = _divided(requested, float(replay.cluster.capacity[:, 0].sum()))
    due = entitled.sum(axis=0)
    return np.where(due > 0, np.minimum(held, entitled).sum(axis=0) / np.maximum(due, 1e-9), 1.0)


def _over_time(
    moments: Floats, tenant: NDArray[np.int64], start: Floats, end: Floats, gpus: Floats, tenants: int
) -> Floats:
    """(moments, tenants): accelerators of intervals that have started and not ended."""
    change = np.zeros((len(moments) + 1, tenants))
    np.add.at(change, (np.searchsorted(moments, start), tenant), gpus)
    np.add.at(change, (np.searchsorted(moments, end), tenant), -gpus)
    summed: Floats = np.cumsum(change, axis=0)[:-1]
    return summed


def _divided(requested: Floats, capacity: float) -> Floats:
    """Max-min shares of the capacity, row by row: the smallest demand is served first."""
    entitled = np.zeros_like(requested)
    left = np.full(len(requested), capacity)
    order = np.argsort(requested, axis=1)
    rows = np.arange(len(requested))
    for place in range(requested.shape[1]):
        column = order[:, place]
        entitled[rows, column] = np.minimum(requested[rows, column], left / (requested.shape[1] - place))
        left -= entitled[rows, column]
    return entitled


BELIEF_POLICIES = ("trimtab", "srtf")
_BELIEF_FACTOR = 2.0


def belief_figures(stage: PhillyJobs, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """By policy: average hours to completion when it knows, when it is wrong, and the second over the first.

    Factors are from a half to two, as often too high as too low, and each job keeps its own.
    """
    wrong = np.exp(
        draws(seed, "beliefs").uniform(-1.0, 1.0, len(stage.jobs)) * np.log(_BELIEF_FACTOR)
    ).tolist()
    figures = {}
    for name in names:
        right_h, wrong_h = (
            float(stage.run(name, wrong=factors).completion.mean()) / 3600.0 for factors in (None, wrong)
        )
        figures[name] = {"right_h": right_h, "wrong_h": wrong_h, "ratio": wrong_h / right_h}
    return figures


ON_DEMAND = 3.06
"""Dollars per accelerator and hour: a V100 on EC2's list (p3)."""
SPOT = 0.30
"""Of that, assumed; price lists of 2026 have spot at 0.11 to 0.6 of on-demand for V100, T4 and A100."""
RECLAIMS = 0.05 / 3600.0
REFILL = 600.0
THRIFT = 10_000.0
"""Seconds that a user would wait to save a dollar: on demand, a V100 costs 6 s per second more than spot."""
_SPOT_FACTORS, _SPOT_SPARE = (3.0, 8.0), 1800.0


def spot_figures(stage: PhillyJobs, seed: int) -> dict[str, dict[str, float]]:
    """Dollars, deadlines met and hours, on demand only and with spot nodes, and the saving."""
    requested = with_deadlines(stage, seed, _SPOT_FACTORS, _SPOT_SPARE)
    (node,) = stage.groups
    demand = replace(node, name="on-demand", price=node.gpus * ON_DEMAND / 3600.0)
    spot = replace(node, name="spot", price=SPOT * demand.price, market=Market.SPOT, reclaims=RECLAIMS)
    figures = {}
    for name, groups in {"on-demand": (demand,), "with spot": (demand, spot)}.items():
        faults = RandomFaults(groups, FaultRates(refill=REFILL), seed)
        replay = replace(requested, groups=groups).run(f"trimtab:thrift={THRIFT:g}", faults)
        figures[name] = {
            "cost": replay.cost,
            "deadlines_met": replay.deadlines_met,
            "avg_jct_h": float(replay.completion.mean()) / 3600.0,
            "restarts": float(replay.restarts.mean()),
        }
    figures["with spot"]["cheaper"] = 1.0 - figures["with spot"]["cost"] / figures["on-demand"]["cost"]
    return figures
