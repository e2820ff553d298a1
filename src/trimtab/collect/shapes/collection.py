"""Measure every job under every shape, lane by lane; what is finished is kept, so a killed run goes on."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trimtab.collect.shapes.lane import measure
from trimtab.collect.shapes.local_run import run_locally
from trimtab.collect.shapes.point import Key, keys_of
from trimtab.collect.shapes.point_file import PointFile
from trimtab.collect.shapes.spec import Spec
from trimtab.collect.shapes.workers import WorkerEndedError
from trimtab.kernel import check_writable, sweep_groups
from trimtab.observe import HostSpeed, sweep_folders

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Collected:
    """How far it is: what is measured now, points that are done, of how many."""

    now: str
    done: int
    of: int


_START = 5.0  # s until workers have made their first steps
_LOCAL_RUNS = 6
_OVERHEAD = 1.25  # turns that settle, and those that are repeated


def usual_seconds(spec: Spec) -> float:
    """About how long all of it takes; steps longer than the window take longer."""
    lanes = list(spec.lanes())
    points = sum(len(spec.shapes_of(lane.workers)) for lane in lanes)
    local = len(spec.jobs) * _LOCAL_RUNS * (_START + spec.window)
    return len(lanes) * _START + points * spec.window * _OVERHEAD + local


Progress = Callable[[Collected], None]


def collect_shapes(spec: Spec, path: Path, progress: Progress = lambda state: None) -> int:
    """Measure what `path` does not have yet, and append it there; how many points that were."""
    spec.check_host()
    check_writable(path)
    file = PointFile(path)
    with file.alone():
        finished = file.finished(spec)
        sweep_groups()
        sweep_folders()
        file.begin()
        return _collect(spec, file, finished, progress)


def _collect(spec: Spec, file: PointFile, finished: set[Key], progress: Progress) -> int:
    lanes = [(lane, spec.shapes_of(lane.workers)) for lane in spec.lanes()]
    total = sum(len(shapes) for _, shapes in lanes)
    done = sum(len(keys_of(lane, shapes) & finished) for lane, shapes in lanes)
    measured, speed = 0, HostSpeed()
    local = set(file.local())
    for lane, shapes in lanes:
        if lane.job.name not in local:
            local.add(lane.job.name)
            progress(Collected(f"{lane.job.name}, local run", done, total))
            try:
                file.keep_local(lane.job.name, run_locally(lane.job, spec))
            except WorkerEndedError as error:
                log.warning(f"{lane.job.name} has no local run: {error}")
        todo = [s for s in shapes if (lane.job.name, s.name, lane.batch, lane.workers) not in finished]
        if not todo:
            continue
        progress(Collected(f"{lane.job.name}, {lane.workers} of batch {lane.batch}", done, total))
        points = measure(lane, todo, spec, speed)
        file.append(points)
        measured, done = measured + len(points), done + len(points)
    progress(Collected("done", done, total))
    return measured
