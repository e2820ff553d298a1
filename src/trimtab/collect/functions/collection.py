"""Measure many applications on many lanes at once; finished ones are kept, so a killed run goes on."""

import contextlib
import importlib
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path

from trimtab.collect.functions.applications import Application, draw_application
from trimtab.collect.functions.lane import Effort, FunctionLane
from trimtab.collect.functions.law import LAWS, OpenWhisk
from trimtab.collect.functions.measurements import Measurement, MeasurementFile
from trimtab.collect.functions.surroundings import local_server
from trimtab.core import BadInputError, MissingDependencyError, TrimtabError
from trimtab.kernel import LimitedGroup, NoGroupError, check_writable, die_with_parent, sweep_groups
from trimtab.observe import sweep_folders

SIZES = (128, 256, 512, 1024, 2048, 3008)  # MB
_LEAST_SIZE = 16  # MB, below which not even an empty function starts
_LANE_CPUS = 2
_PATIENCE = 10.0  # s for a lane to clean up after itself

# Called after every application with how many are finished, of how many.
Progress = Callable[[int, int], None]
Job = tuple[str, Application]


@dataclass(frozen=True, slots=True)
class Collection:
    """Numbers of applications by environment, and memory sizes, to measure."""

    applications: Mapping[str, int]  # by environment
    sizes: tuple[int, ...] = SIZES  # MB
    effort: Effort | None = None
    seed: int = 0
    lanes: int | None = None  # as many as the CPUs allow

    def jobs(self) -> list[Job]:
        """Every application in every environment, the environments side by side."""
        drawn = [draw_application(index, self.seed) for index in range(max(self.applications.values()))]
        return [
            (environment, application)
            for index, application in enumerate(drawn)
            for environment, count in self.applications.items()
            if index < count
        ]

    def check(self) -> None:
        """Refuse settings that cannot be measured."""
        for environment in self.applications:
            if environment not in LAWS:
                raise BadInputError(f"there is no environment {environment}; there are {', '.join(LAWS)}")
        if sum(self.applications.values()) == 0:
            raise BadInputError("there is no application to measure; give at least one environment some")
        if not self.sizes:
            raise BadInputError("no memory size is given; name at least one, as in 128MB,512MB")
        if len(set(self.sizes)) < len(self.sizes):
            raise BadInputError("a memory size is given twice; name each once")
        if min(self.sizes) < _LEAST_SIZE:
            raise BadInputError(
                f"{min(self.sizes)} MB is too little for a function; {_LEAST_SIZE} MB is the least"
            )
        pool = OpenWhisk().pool_mb
        if self.applications.get(OpenWhisk.name) and max(self.sizes) >= pool:
            raise BadInputError(
                f"{max(self.sizes)} MB leave no room for neighbours in OpenWhisk's pool of {pool} MB; "
                "name smaller sizes, or no application under its law"
            )
        if self.effort and not math.isfinite(self.effort.seconds):
            raise BadInputError("the seconds to measure are not a number; 3 is usual")


def collect_functions(collection: Collection, path: Path, progress: Progress = lambda done, of: None) -> int:
    """Measure applications that `path` does not have yet, and append them; their number."""
    collection.check()
    check_writable(path)
    file = MeasurementFile(path, collection.sizes, collection.seed)
    jobs = collection.jobs()
    finished = file.finished([application for _, application in jobs])
    _load_libraries()
    try:
        LimitedGroup.create().remove()  # better an error now than in every lane
    except NoGroupError as error:
        advice = "" if os.geteuid() == 0 else "; functions are measured as root"
        raise NoGroupError(f"{error}{advice}") from None
    sweep_groups()
    sweep_folders()
    file.begin_with([application for _, application in jobs])
    todo = [job for job in jobs if (job[0], job[1].name) not in finished]
    done = len(jobs) - len(todo)
    progress(done, len(jobs))
    with contextlib.closing(_measured(collection, todo)) as measured:
        for rows in measured:
            file.append(rows)
            done += 1
            progress(done, len(jobs))
    return len(todo)


def _measured(collection: Collection, todo: list[Job]) -> Generator[list[Measurement], None, None]:
    """The rows of every job, as lanes finish them."""
    waiting = iter(todo)
    with _lanes(collection, len(todo)) as lanes:
        busy = [lane for lane in lanes if _give(lane, waiting)]
        while busy:
            ready = wait(busy)
            for lane in [lane for lane in busy if lane in ready]:
                try:
                    answer = lane.recv()
                except (EOFError, OSError):
                    answer = "a measuring process has died; run the same command again to go on"
                if isinstance(answer, str):
                    raise TrimtabError(answer)
                yield answer
                if not _give(lane, waiting):
                    busy.remove(lane)


def _give(lane: Connection, waiting: Iterator[Job]) -> bool:
    """Give a lane the next job; whether there was one."""
    job = next(waiting, None)
    if job is not None:
        with contextlib.suppress(OSError):  # the lane has ended; its error is still to be read
            lane.send(job)
    return job is not None


@contextlib.contextmanager
def _lanes(collection: Collection, most: int) -> Iterator[list[Connection]]:
    """Start the lanes' processes; the pipes through which they get jobs and answer."""
    context = multiprocessing.get_context("fork")
    places, spare = _places(collection.lanes)
    processes, pipes = [], list[Connection]()
    try:
        for cpus in places[:most]:
            pipe, child_end = context.Pipe()
            process = context.Process(target=_lane, args=(cpus, spare, collection, child_end, os.getpid()))
            process.start()
            child_end.close()  # so that the lane's death is the pipe's end
            processes.append(process)
            pipes.append(pipe)
        yield pipes
    finally:
        with _uninterrupted():
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(_PATIENCE)
                process.kill()
                process.join()
            sweep_groups()
            sweep_folders()


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore another Ctrl-C while cleaning up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _lane(
    cpus: tuple[int, ...], spare: frozenset[int], collection: Collection, pipe: Connection, parent: int
) -> None:
    """A lane's process: measures jobs until it is terminated."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent terminates it
    signal.signal(signal.SIGTERM, _exit_once)
    die_with_parent(signal.SIGTERM)
    if os.getppid() != parent:
        return
    try:
        with local_server(spare) as server:
            lane = FunctionLane(cpus, server, collection.effort or Effort())
            while True:
                environment, application = pipe.recv()
                pipe.send(lane.measure(application, LAWS[environment], collection.sizes))
    except TrimtabError as error:
        pipe.send(str(error))
    except OSError as error:
        pipe.send(f"functions cannot be run here: {(error.strerror or str(error)).lower()}")
    except EOFError:
        pass
    finally:
        sweep_groups(own=True)


def _exit_once(number: int, frame: object) -> None:
    """Exit by an exception, once, so that cleaning up is not interrupted."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def _places(lanes: int | None) -> tuple[list[tuple[int, ...]], frozenset[int]]:
    """The lanes' CPUs, and the servers': the rest, or all if there is no rest."""
    cpus = sorted(os.sched_getaffinity(0))
    width = min(_LANE_CPUS, len(cpus))
    most = max(1, (len(cpus) - 1) // width)
    count = min(lanes or most, len(cpus) // width)
    taken = [tuple(cpus[lane * width : (lane + 1) * width]) for lane in range(count)]
    spare = frozenset(cpus[count * width :])
    return taken, spare or frozenset(cpus)


def _load_libraries() -> None:
    """Import the libraries of segments once, before functions are forked.

    Matrix libraries start a thread per CPU of the host, whatever the function's share: limit them to one.
    """
    try:
        _, _, _, torch, threadpools = (
            importlib.import_module(name) for name in ("numpy", "PIL.Image", "yaml", "torch", "threadpoolctl")
        )
    except ImportError as error:
        raise MissingDependencyError(
            f"functions are made with {error.name}, which is not installed; pip install 'trimtab[learn]'"
        ) from None
    threadpools.threadpool_limits(1)
    torch.set_num_threads(1)
