"""Independent pieces of work side by side: in processes of this machine, or as tasks of a Ray cluster."""

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from trimtab.core import BadInputError, MissingDependencyError, NotFoundError

LOCAL = "local://"
_RAY = "ray://"
_AUTO = "auto"  # the cluster that this machine is part of
# Where Ray notes the address of one started here.
_STARTED_HERE = Path("/tmp/ray/ray_current_cluster")  # nosec B108 # Ray's choice; its owner is looked at
_PATIENCE = 10.0  # s, for somebody to listen at an address

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def check_engine(engine: str) -> None:
    """Refuse what is not an engine, before anything is done."""
    if engine != LOCAL and not (engine.startswith(_RAY) and engine != _RAY):
        raise BadInputError(
            f'"{engine:.60}" is no engine to learn on; there are {LOCAL}, {_RAY}HOST:PORT and {_RAY}{_AUTO}'
        )
    if engine.startswith(_RAY):
        _ray()


@contextmanager
def workers(engine: str = LOCAL) -> Iterator["Workers"]:
    """Where to work; processes end, and the cluster is left, when the block does."""
    check_engine(engine)
    with _processes() if engine == LOCAL else _cluster(engine) as found:
        yield found


class Workers:
    """Runs one function on many tasks; the results come in the order of the tasks."""

    def __init__(
        self, start: Callable[[Callable[..., Any], Sequence[Any]], Iterator[tuple[int, Any]]]
    ) -> None:
        self._start = start

    def each(
        self,
        work: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        done: Callable[[int], None] = lambda number: None,
    ) -> list[_Result]:
        """`done` is called with the number of each task as it ends."""
        results: dict[int, _Result] = {}
        for number, result in self._start(work, tasks):
            results[number] = result
            done(number)
        return [results[number] for number in range(len(tasks))]


@contextmanager
def _processes() -> Iterator[Workers]:
    """One process per CPU; on the way out, however it is, all are ended."""
    with _one_thread_each(), get_context("spawn").Pool(os.cpu_count() or 1, _leave_interrupts) as pool:

        def start(work: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
            return pool.imap_unordered(_numbered, [(work, number, task) for number, task in enumerate(tasks)])

        yield Workers(start)


@contextmanager
def _cluster(engine: str) -> Iterator[Workers]:
    ray = _ray()
    try:
        address = _listening(engine)
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
    except Exception as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise NotFoundError(f"no Ray cluster answers at {engine}: {why:.200}") from None

    def start(work: Callable[..., Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        remote = ray.remote(num_cpus=1)(_numbered)
        waiting = [remote.remote((work, number, task)) for number, task in enumerate(tasks)]
        try:
            while waiting:
                finished, waiting = ray.wait(waiting)
                yield from ray.get(finished)
        finally:
            for each in waiting:
                ray.cancel(each, force=True)

    try:
        yield Workers(start)
    finally:
        ray.shutdown()


def _listening(engine: str) -> str:
    """The cluster's address, once somebody listens there: Ray itself would try for minutes."""
    address = engine
    if engine == _RAY + _AUTO:
        address = os.environ.get("RAY_ADDRESS", "") or _started_here()
        if not address:
            raise ConnectionError("none was started on this machine, and RAY_ADDRESS names none")
    host, _, port = address.removeprefix(_RAY).rpartition(":")
    if not host or not port.isdigit():
        raise ConnectionError(f"{address} is not a host and a port")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE):
        return address


def _numbered(given: tuple[Callable[..., Any], int, Any]) -> tuple[int, Any]:
    work, number, task = given
    return number, work(task)


def _leave_interrupts() -> None:
    """Ctrl-C is for the process that gave the work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Spawned processes inherit this before they load anything: there is one of them for each CPU already."""
    name = "OMP_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingDependencyError("learning on a cluster needs Ray; pip install 'trimtab[ray]'") from None
    return ray


def _started_here() -> str:
    """What was noted by us or root: anybody can write there, and is not to be given our code to run."""
    try:
        with _STARTED_HERE.open(encoding="utf-8") as note:
            trusted = os.fstat(note.fileno()).st_uid in (0, os.geteuid())
            return note.read().strip() if trusted else ""
    except OSError:
        return ""
