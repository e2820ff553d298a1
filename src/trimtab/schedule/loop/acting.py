"""What an allocation means for runs: which are stopped, which start and where, which are refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.core import Estimate
from trimtab.schedule.allocation import WAITING, Allocation
from trimtab.schedule.cluster import Group
from trimtab.schedule.job import Job
from trimtab.schedule.loop.entries import expected
from trimtab.schedule.loop.fleet import Fleet
from trimtab.schedule.loop.view import View
from trimtab.schedule.placing import Floor, Placement
from trimtab.schedule.submission import Submission
from trimtab.store import JobRecord, JobState, Part


@dataclass(frozen=True, slots=True)
class JobStart:
    """Where a job starts, why, and what is expected of it."""

    group: Group
    parts: tuple[Part, ...]
    reason: str
    estimates: dict[str, Estimate]


@dataclass(frozen=True, slots=True)
class Plan:
    """By row: runs to stop (to what end, and why), jobs to start, to refuse, and without room as yet."""

    stops: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    starts: Mapping[int, JobStart] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    unplaced: tuple[int, ...] = ()


def plan_of(
    view: View,
    allocation: Allocation,
    fleet: Fleet,
    records: Sequence[JobRecord],
    submission: Callable[[JobRecord], Submission],
) -> Plan:
    """Starts are on nodes that are free now; what is stopped gives its nodes to a later round."""
    before, after = view.previous.shape, allocation.shape
    why = {row: allocation.why.get(row, "") for row in range(len(view.rows))}
    refused = {
        row: why[row] or "its deadline cannot be met"
        for row in allocation.refused
        if view.rows[row].record.state is JobState.WAITING
    }
    going = [int(row) for row in np.flatnonzero((before != WAITING) & (after != before))]
    stops = {
        row: (_what(view, row, int(after[row])), why[row] or _made_room(view, int(after[row])))
        for row in going
        if view.rows[row].record.run.run_id
    }
    wanted = np.where(before == WAITING, after, before)
    for row, each in enumerate(view.rows):
        if each.record.state is JobState.STOPPING or row in refused:
            wanted[row] = WAITING
    floor = _occupied(fleet, records, submission)
    keys = [row.record.id for row in view.rows]
    settled = floor.settle(keys, view.jobs, view.cluster, view.previous, replace(allocation, shape=wanted))
    starts = {
        row: JobStart(
            fleet.groups[placement.group],
            tuple(Part(fleet.nodes[placement.group][node], count) for node, count in placement.parts),
            why[row] or _first_in_line(view, row),
            expected(view, row, int(after[row])),
        )
        for row, placement in settled.placed.items()
    }
    return Plan(stops, starts, refused, settled.unplaced)


def _occupied(
    fleet: Fleet, records: Sequence[JobRecord], submission: Callable[[JobRecord], Submission]
) -> Floor:
    """A floor on which everything stands that has not gone yet; large shares first, so that all find room.

    Where shares cannot be put together again as their engine has them, their node is taken for full.
    """
    floor = Floor(fleet.groups)
    there = [(record, submission(record).job) for record in records if record.state is not JobState.WAITING]
    for record, job in sorted(there, key=lambda each: -each[1].worker.gpus):
        seen = [part for part in record.run.parts if part.node in fleet.places]
        if seen:
            group = fleet.places[seen[0].node][0]
            nodes = tuple((fleet.places[part.node][1], part.workers) for part in seen)
            try:
                floor.hold(record.id, Placement(group, nodes, _demand(job)))
            except ValueError:
                for node, _ in nodes:
                    floor.close(group, node)
    return floor


def _demand(job: Job) -> tuple[float, float, float]:
    return job.worker.gpus, job.worker.cpus, job.worker.memory


def _what(view: View, row: int, after: int) -> str:
    """What a change of shape is called."""
    if after == WAITING:
        return "preempt"
    old, new = (view.cluster.shapes[shape] for shape in (int(view.previous.shape[row]), after))
    if old.group != new.group:
        return "move"
    return "grow" if new.workers > old.workers else "shrink"


def _made_room(view: View, after: int) -> str:
    if after == WAITING:
        return "its place was given to others"
    new = view.cluster.shapes[after]
    return f"it goes on with {new.workers} workers on {view.cluster.groups[new.group].name}"


def _first_in_line(view: View, row: int) -> str:
    restarts = view.rows[row].record.run.restarts
    return "there is room for it" if not restarts else f"there is room for it again, restart {restarts}"
