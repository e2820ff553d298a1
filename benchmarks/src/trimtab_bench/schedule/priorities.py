"""Priorities on the Philly jobs: how long those wait and run that matter most, one in five.

How much shorter that can be than first come, first served depends on how long that makes people wait:
`bound` is what a policy would reach under which they never wait. So there is a busier cluster too.
"""

from collections.abc import Sequence
from dataclasses import replace

from trimtab.schedule import Priority
from trimtab_bench.schedule.stage import Stage, draws, duration

POLICIES = ("trimtab", "priority", "fifo")
BUSIER = 1.2
"""How many times the load of the other sections the busier cluster has."""
_HIGH = 0.2


def priority_figures(stage: Stage, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
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
    for each in figures.values():
        each["shorter"] = 1.0 - each["high_h"] / fifo
        each["bound"] = 1.0 - sum(alone) / len(alone) / fifo
    return figures
