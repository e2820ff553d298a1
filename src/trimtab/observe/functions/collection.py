"""Measure many applications on many lanes at once; every finished one is kept, so a killed run goes on."""

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from trimtab.core import MissingDependencyError, TrimtabError
from trimtab.kernel import LimitedGroup, check_writable, die_with_parent, sweep_groups
from trimtab.observe.functions.application import Application, draw_application
from trimtab.observe.functions.lane import Lane
from trimtab.observe.functions.law import LAWS
from trimtab.observe.functions.measure import Effort, Measurement
from trimtab.observe.functions.server import local_server
from trimtab.observe.functions.table import MeasurementFile, write_applications

SIZES = (128, 256, 512, 1024, 2048, 3008)  # MB
_LANE_CPUS = 2
_WAIT = 0.5  # s between looks at whether a lane has died
_PATIENCE = 10.0  # s for a lane to clean up after itself

# Called after every application with how many are finished, of how many.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Collection:
    """What to measure: so many applications in each environment, at these sizes."""

    applications: dict[str, int]  # by environment
    sizes: tuple[int, ...] = SIZES
    effort: Effort = Effort()
    seed: int = 0
    lanes: int | None = None  # as many as the CPUs allow


def collect(collection: Collection, path: Path, progress: Progress = lambda done, of: None) -> int:
    """Measure what `path` does not have yet, and append it there; how many applications that were."""
    _load_libraries()
    check_writable(path)
    LimitedGroup.create().remove()  # better an error now than in every lane
    wanted = [
        (environment, index)
        for index in range(max(collection.applications.values()))
        for environment, count in collection.applications.items()
        if index < count
    ]
    file = MeasurementFile(path)
    finished = file.finished(len(collection.sizes))
    names = {index: draw_application(index, collection.seed) for _, index in wanted}
    write_applications(path.with_suffix(".applications.json"), [names[index] for index in sorted(names)])
    todo = [(environment, names[index]) for environment, index in wanted]
    todo = [job for job in todo if (job[0], job[1].name) not in finished]
    done = len(wanted) - len(todo)
    progress(done, len(wanted))
    sweep_groups()
    for rows in _measured(collection, todo):
        file.append(rows)
        done += 1
        progress(done, len(wanted))
    return len(todo)


def _measured(collection: Collection, todo: list[tuple[str, Application]]) -> Any:
    """The rows of every job as lanes finish them."""
    context = multiprocessing.get_context("fork")
    jobs, results = context.Queue(), context.Queue()
    places, spare = _places(collection.lanes)
    lanes: list[BaseProcess] = [
        context.Process(target=_lane, args=(cpus, spare, collection, jobs, results)) for cpus in places
    ]
    for job in [*todo, *([None] * len(lanes))]:
        jobs.put(job)
    try:
        for lane in lanes:
            lane.start()
        for _ in todo:
            yield _next(results, lanes)
    finally:
        with _uninterrupted():
            for lane in lanes:
                lane.terminate()
            for lane in lanes:
                lane.join(_PATIENCE)
                lane.kill()
            jobs.cancel_join_thread()
            sweep_groups()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Cleaning up goes on although the impatient press Ctrl-C again."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _next(results: Any, lanes: Sequence[BaseProcess]) -> list[Measurement]:
    while True:
        try:
            answer = results.get(timeout=_WAIT)
        except queue.Empty:
            if all(not lane.is_alive() for lane in lanes) and results.empty():
                raise TrimtabError("the measuring processes ended before their work was done") from None
            continue
        if isinstance(answer, str):
            raise TrimtabError(answer)
        return list(answer)


def _lane(
    cpus: tuple[int, ...], spare: frozenset[int], collection: Collection, jobs: Any, results: Any
) -> None:
    """A lane's process: jobs until there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells us to end
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    die_with_parent(signal.SIGTERM)
    with local_server(spare) as server:
        lane = Lane(cpus, server, collection.effort)
        while (job := jobs.get()) is not None:
            environment, application = job
            try:
                results.put(lane.measure(application, LAWS[environment], collection.sizes))
            except TrimtabError as error:
                results.put(str(error))
                return
        results.close()
        results.join_thread()


def _places(lanes: int | None) -> tuple[list[tuple[int, ...]], frozenset[int]]:
    """The lanes' CPUs, and those for the servers: what the lanes leave over, if anything."""
    cpus = sorted(os.sched_getaffinity(0))
    width = min(_LANE_CPUS, len(cpus))
    most = max(1, (len(cpus) - 1) // width) if len(cpus) > width else 1
    count = min(lanes or most, max(1, len(cpus) // width))
    taken = [tuple(cpus[lane * width : (lane + 1) * width]) for lane in range(count)]
    spare = frozenset(cpus[count * width :])
    return taken, spare or frozenset(cpus)


def _load_libraries() -> None:
    """What segments need, loaded once: functions are forked, so none pays for it again.

    Matrix libraries start a thread per CPU of the host, not of the function's share: one will do.
    """
    try:
        import numpy
        import PIL.Image
        import threadpoolctl
        import torch
        import yaml
    except ImportError as error:
        raise MissingDependencyError(
            f"functions are made with {error.name}, which is not installed; pip install 'trimtab[learn]'"
        ) from None
    threadpoolctl.threadpool_limits(1)
    torch.set_num_threads(1)
    del numpy, PIL, yaml
