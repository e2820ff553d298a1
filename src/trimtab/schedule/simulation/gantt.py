"""Who held what when, cut down to what a chart can show."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from trimtab.schedule.cluster import Floats
from trimtab.schedule.simulation.replay import Replay, Segment

MOST_JOBS = 300
"""Rows of a Gantt chart; beyond that, those who waited longest."""

_MOST_SEGMENTS = 8000
_BINS = 400


@dataclass(frozen=True, slots=True)
class Shown:
    """What a Gantt chart draws, and a sentence about what it leaves out."""

    segments: tuple[Segment, ...]
    note: str


def drawn(replay: Replay) -> Shown:
    """All jobs that ran where they are few, else those that waited longest; moves in one form are one bar."""
    by_job: dict[int, list[Segment]] = defaultdict(list)
    for each in replay.segments:
        mine = by_job[each.job]
        if mine and _goes_on(mine[-1], each.group, each.workers, each.start):
            mine[-1] = Segment(each.job, each.group, each.workers, mine[-1].start, each.end)
        else:
            mine.append(Segment(each.job, each.group, each.workers, each.start, each.end))
    waited = replay.waited
    chosen: list[Segment] = []
    jobs = sorted(by_job, key=lambda job: (-waited[job], job))[:MOST_JOBS]
    for count, job in enumerate(jobs):
        if chosen and len(chosen) + len(by_job[job]) > _MOST_SEGMENTS:
            jobs = jobs[:count]
            break
        chosen += by_job[job]
    if len(jobs) == len(by_job):
        return Shown(tuple(chosen), f"All {len(jobs):,} jobs that ran, in order of submission.")
    return Shown(
        tuple(chosen),
        f"The {len(jobs):,} of {len(by_job):,} jobs that waited longest, in order of submission.",
    )


def busy(replay: Replay) -> tuple[Floats, Floats]:
    """Moments, and between them the share of each group's accelerators (or CPUs) that jobs held."""
    begin = float(replay.submitted[0])
    edges = np.linspace(begin, max((each.end for each in replay.segments), default=begin + 1.0), _BINS + 1)
    shares = np.zeros((len(replay.cluster.groups), _BINS))
    for index, group in enumerate(replay.cluster.groups):
        here = [each for each in replay.segments if each.group == index]
        capacity = group.nodes * (group.gpus or group.cpus)
        if here and capacity:
            workers = [replay.jobs[each.job].worker for each in here]
            each_takes = [worker.gpus if group.gpus else worker.cpus for worker in workers]
            amount = np.array([each.workers for each in here]) * np.array(each_takes)
            starts, ends = (np.array([getattr(each, name) for each in here]) for name in ("start", "end"))
            held = _held_until(edges, starts, amount) - _held_until(edges, ends, amount)
            shares[index] = np.diff(held) / np.diff(edges) / capacity
    return edges, shares


def _held_until(moments: Floats, since: Floats, amount: Floats) -> Floats:
    """The integral until each moment of what is held from `since` on, for ever."""
    order = np.argsort(since)
    since, amount = since[order], amount[order]
    index = np.searchsorted(since, moments, "right")
    total = np.concatenate(([0.0], np.cumsum(amount)))[index]
    begun = np.concatenate(([0.0], np.cumsum(amount * since)))[index]
    held: Floats = total * moments - begun
    return held


def _goes_on(last: Segment, group: int, workers: int, start: float) -> bool:
    return last.group == group and last.workers == workers and abs(last.end - start) < 1e-6
