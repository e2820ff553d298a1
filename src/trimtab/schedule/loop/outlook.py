"""What is told to those who wait: why, and when their job is believed to start."""

from dataclasses import replace

import numpy as np

from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.loop.acting import Plan
from trimtab.schedule.loop.entries import finite
from trimtab.schedule.loop.forecast import Start, forecast
from trimtab.schedule.loop.view import View
from trimtab.schedule.possible import accepts, impossible
from trimtab.store import JobState, Outlook


def outlooks(
    view: View, allocation: Allocation, plan: Plan, now: float
) -> tuple[dict[str, float], dict[str, Outlook]]:
    """By id: units done, and the outlook of those that wait; only what differs from what was told before."""
    done = {row.record.id: row.done for row in view.rows if row.done != row.record.done}
    waiting = {
        index: row
        for index, row in enumerate(view.rows)
        if row.record.state is JobState.WAITING and index not in plan.starts and index not in plan.refused
    }
    starts = forecast(view.jobs, view.cluster, allocation) if waiting else {}
    told = {}
    for index, row in waiting.items():
        outlook = _outlook(_why(view, allocation, plan, index), starts.get(index), now)
        if not _same(outlook, row.record.outlook):
            told[row.record.id] = outlook
    return done, told


def _outlook(why: str, start: Start | None, now: float) -> Outlook:
    if start is None or finite(start.value) is None:
        return Outlook(why)
    high = finite(start.high)
    return Outlook(why, now + start.value, now + start.low, None if high is None else now + high)


def _same(one: Outlook, other: Outlook) -> bool:
    """Whether nobody would notice the difference: the same words, and starts within seconds."""
    near = all(
        (a is None) == (b is None) and (a is None or b is None or abs(a - b) < 5.0)
        for a, b in ((one.start, other.start), (one.low, other.low), (one.high, other.high))
    )
    return near and replace(one, start=None, low=None, high=None) == replace(
        other, start=None, low=None, high=None
    )


def _why(view: View, allocation: Allocation, plan: Plan, index: int) -> str:
    row = view.rows[index]
    never = impossible(row.job, view.cluster.groups)
    if never is not None:
        return f"it is impossible here: {never}"
    if index in allocation.why:
        return allocation.why[index]
    if allocation.shape[index] != WAITING:
        leaving = "until others have saved and stopped" if plan.stops else "until nodes are free together"
        return f"it is its turn, and it waits {leaving}"
    before = int(np.count_nonzero(allocation.shape[allocation.order[: _place(allocation, index)]] == WAITING))
    ahead = f"{before} jobs that wait come before it" if before else "it is the next in line"
    return f"{ahead}; {_full(view, allocation, index)}"


def _place(allocation: Allocation, index: int) -> int:
    return int(np.flatnonzero(allocation.order == index)[0])


def _full(view: View, allocation: Allocation, index: int) -> str:
    """How much of what it could use is in use."""
    job = view.rows[index].job
    used = np.zeros(len(view.cluster.groups))
    given = np.flatnonzero(allocation.shape != WAITING)
    shapes = allocation.shape[given]
    each = view.jobs.gpus[given] if job.worker.gpus else view.jobs.cpus[given]
    np.add.at(used, view.cluster.shape_group[shapes], view.cluster.shape_workers[shapes] * each)
    column = 0 if job.worker.gpus else 1
    parts = [
        f"{count:g} of {view.cluster.capacity[number, column]:g} {group.accelerator or 'CPUs'} in use"
        for number, (group, count) in enumerate(zip(view.cluster.groups, used.tolist(), strict=True))
        if accepts(job.worker, group)
    ]
    return ", ".join(parts)
