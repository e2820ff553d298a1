"""Deadlines on the Philly jobs: how many of those that can be met are.

Every job's is its duration times 1.5 to 5, and ten minutes, after submission; half of them are hard.
*Feasible* are those that an admission test takes when all are hard: earliest deadline first, planning each
new job together with all that it has taken before, and then really meeting them. The set is fixed before
anybody is scored and the same for all. So nobody gains by refusing: a feasible job that is refused, or late,
is missed, and jobs that are not feasible still come and compete.
"""

from collections.abc import Sequence
from dataclasses import replace

from trimtab_bench.schedule.stage import Stage, draws, duration

POLICIES = ("trimtab", "edf", "srtf", "fifo")
_SPARE = 600.0
_FACTORS = (1.5, 5.0)


def deadline_figures(stage: Stage, names: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """By policy: the share met of feasible deadlines and of all, and how many jobs were refused."""
    asked = with_deadlines(stage, seed, _FACTORS, _SPARE)
    admitted = replace(asked, jobs=tuple(replace(job, hard=True) for job in asked.jobs)).run("edf")
    feasible = admitted.ended <= admitted.deadline
    half = draws(seed, "hard").permutation(len(asked.jobs)) < len(asked.jobs) // 2
    jobs = tuple(replace(job, hard=bool(hard)) for job, hard in zip(asked.jobs, half, strict=True))
    figures = {}
    for name in names:
        replay = replace(asked, jobs=jobs).run(name)
        in_time = replay.ended <= replay.deadline
        figures[name] = {
            "feasible": float(feasible.mean()),
            "feasible_met": float(in_time[feasible].mean()),
            "met": float(in_time.mean()),
            "refused": float(replay.refused.sum()),
            "avg_jct_h": float(replay.completion.mean()) / 3600.0,
        }
    return figures


def with_deadlines(stage: Stage, seed: int, factors: tuple[float, float], spare: float) -> Stage:
    """Soft deadlines: seconds to spare and the duration times something between two factors."""
    drawn = draws(seed, "deadlines").uniform(*factors, len(stage.jobs))
    jobs = tuple(
        replace(job, workload=replace(job.workload, deadline=float(duration(job) * factor + spare)))
        for job, factor in zip(stage.jobs, drawn, strict=True)
    )
    return replace(stage, jobs=jobs)
